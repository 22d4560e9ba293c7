package vpptest

import (
	"fmt"
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
	return ""
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
