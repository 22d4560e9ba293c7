package calico

import (
	"crypto/sha1"
	"fmt"
	"strconv"
	"strings"
)

// VTEPMAC returns the MAC address of the VXLAN device of n, in lower case with colons: what the
// Node says, else what Felix computes from its name (felix/calc/vxlan_resolver.go). A bad one is no
// error of the Node as a whole: BGP does not depend on it.
func (n Node) VTEPMAC(v6 bool) (string, error) {
	field, written, seed := "spec.vxlanTunnelMACAddr", n.VXLANTunnelMACAddr, n.Name
	if v6 {
		field, written = "spec.vxlanTunnelMACAddrV6", n.VXLANTunnelMACAddrV6
		seed += "-v6"
	}
	if written == "" {
		sum := sha1.Sum([]byte(seed))
		return fmt.Sprintf("66:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4]),
			nil
	}
	plain := strings.ReplaceAll(strings.ToLower(written), "-", ":")
	mac, ok := parseMAC(plain)
	switch {
	case !ok:
		return "", fmt.Errorf("%s: %.40q is not a MAC address", field, written)
	case mac[0]&1 != 0 || mac == [6]byte{}:
		return "", fmt.Errorf("%s: %s is not the address of one device", field, plain)
	}
	return plain, nil
}

// parseMAC takes six bytes with colons between them.
func parseMAC(s string) (mac [6]byte, ok bool) {
	if len(s) != len("00:00:00:00:00:00") {
		return mac, false
	}
	for i := range mac {
		b, err := strconv.ParseUint(s[3*i:3*i+2], 16, 8)
		if err != nil || i > 0 && s[3*i-1] != ':' {
			return mac, false
		}
		mac[i] = byte(b)
	}
	return mac, true
}
