package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Forwarded returns how many packets of both families this machine has forwarded since it started,
// without those to and from itself (RFC 4293 ipSystemStatsHCOutForwDatagrams).
func (d *Dataplane) Forwarded() (packets uint64, err error) {
	err = inNamespace(d.namespace, func() error {
		packets, err = forwarded("/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("kernel: count packets: %w", err)
	}
	return packets, nil
}

// forwarded adds the counters of IPv4 and IPv6. A kernel may lack one family.
func forwarded(snmp, snmp6 string) (uint64, error) {
	text, err := os.ReadFile(snmp)
	if err != nil {
		return 0, err
	}
	v4, err := columnOf(string(text), "Ip:", "ForwDatagrams")
	if err != nil {
		return 0, err
	}
	text, err = os.ReadFile(snmp6)
	if errors.Is(err, fs.ErrNotExist) {
		return v4, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "Ip6OutForwDatagrams" {
			v6, err := strconv.ParseUint(f[1], 10, 64)
			return v4 + v6, err
		}
	}
	return 0, errors.New("there is no Ip6OutForwDatagrams")
}

// columnOf finds a value in pairs of lines, names and values, that start with the same word.
func columnOf(text, first, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != first {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name && i < len(f) {
				return strconv.ParseUint(f[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("there is no %s %s", first, name)
}
