package vpptest

import (
	"fmt"
	"net/netip"
	"strings"
)

// cli answers the commands whose answer somebody reads; it prints nothing for others, as VPP does
// for `show teib` where there is none.
func (s *Server) cli(command string) string {
	switch command {
	case "show version", "show version verbose":
		return "vpp v" + Version + "\n"
	case "show ip fib summary":
		return s.summary(false)
	case "show ip6 fib summary":
		return s.summary(true)
	case "show adj summary":
		return s.showHopCounters()
	case "show adj nbr":
		return s.showAdjacencies()
	}
	return s.showEntry(command)
}

// showEntry is what VPP says of an entry, of which only the paths and their flags are read.
func (s *Server) showEntry(command string) string {
	var ip, prefix string
	var table uint32
	_, err := fmt.Sscanf(command, "show %s fib table %d %s", &ip, &table, &prefix)
	p, notPrefix := netip.ParsePrefix(prefix)
	t := s.tables[tableKey{table, ip == "ip6"}]
	if err != nil || notPrefix != nil || t == nil || t.entries[p] == nil {
		return "" // VPP shows a covering entry
	}
	if p.Bits() == 0 && strings.HasSuffix(command, " detail") {
		covered := len(t.nextHops) + s.importsFrom(tableKey{table, ip == "ip6"})
		return fmt.Sprintf("%s, fib_index:%d, epoch:0 flags:none locks:[%sAPI:1, ]\n Delegates:\n"+
			"  covered:[%s]\n", t.name, table, s.locks(table, ip == "ip6"),
			strings.Repeat("{entry:11}, ", covered))
	}
	b, e := &strings.Builder{}, t.entries[p]
	fmt.Fprintf(b, "%s fib:%d index:11 locks:2\n", prefix, table)
	best, _ := e.best(s.sources)
	for src, paths := range e.bySource {
		flags := "added"
		if src == best {
			flags += ",contributing,active,"
		}
		fmt.Fprintf(b, "  %s refs:1 src-flags:%s\n    path-list:[17] locks:2 flags:shared, \n",
			s.sources[src].name, flags)
		for _, path := range paths {
			state, hop := "resolved,", address(path.Nh.Address, ip == "ip6")
			if e.dead[deadPath{src, path.SwIfIndex}] {
				state = "drop,"
			}
			over := ""
			switch {
			case path.SwIfIndex == noInterface || s.links[path.SwIfIndex] != nil:
			case s.orphans[path.SwIfIndex][hop].moved:
				over = fmt.Sprintf(" DELETED (%d) (p2p)", path.SwIfIndex)
			default:
				over = fmt.Sprintf(" if_index:%d", path.SwIfIndex)
			}
			fmt.Fprintf(b, "      path:[19] weight=%d attached-nexthop:  oper-flags:%s\n"+
				"        %s%s\n", path.Weight, state, hop, over)
		}
	}
	return b.String()
}

// locks are those of interfaces on a table.
func (s *Server) locks(table uint32, six bool) string {
	n := 0
	for _, l := range s.links {
		if l.tables[six] == table {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("interface:%d, ", n)
}

// summary is VPP's for one family: for each table the number of entries by length.
func (s *Server) summary(six bool) string {
	b := &strings.Builder{}
	for k, t := range s.tables {
		if k.six != six {
			continue
		}
		fmt.Fprintf(b, "%s, fib_index:%d\n%20s%16s\n", t.name, k.id, "Prefix length", "Count")
		counts := map[int]int{}
		for p := range t.entries {
			counts[p.Bits()]++
		}
		for bits := range 129 {
			if n := counts[bits]; n > 0 {
				fmt.Fprintf(b, "%20d%16d\n", bits, n)
			}
		}
	}
	return b.String()
}
