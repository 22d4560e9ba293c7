package demo

// invite prints what is running and what to try.
func (d *demo) invite() {
	d.report.printf("\n%s\n",
		d.report.paint(bold, "It keeps running until Ctrl-C. Things to try, as root:"))
	for _, n := range d.nodes {
		d.report.note("%s, %s", n.Name, n.speaker.name())
		for _, c := range append(n.speaker.commands(), n.command()) {
			d.report.printf("     %s\n", c)
		}
	}
	d.report.note("workloads and Calico's data")
	lab := d.cfg.Binary + " lab --etcd-endpoints unix://" + d.EtcdSocket()
	w := d.workloads[w1]
	for _, c := range []string{
		"ip netns exec " + w.NS.Name() + " ping " + d.workloads[w3].Address.String(),
		lab + " attach " + d.nodes[node1].Name + " web",
		lab + " borrow " + d.nodes[node1].Name + " cache " + d.nodes[node2].Name,
		lab + " release web",
	} {
		d.report.printf("     %s\n", c)
	}
	d.report.note("logs are in %s", d.Dir())
}
