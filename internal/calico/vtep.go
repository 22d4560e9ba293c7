package calico

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
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
		return printMAC(append([]byte{'f'}, sum[:5]...)), nil
	}
	plain := strings.ReplaceAll(strings.ToLower(written), "-", ":")
	mac, err := hex.DecodeString(strings.ReplaceAll(plain, ":", ""))
	switch {
	case err != nil || len(mac) != 6 || printMAC(mac) != plain:
		return "", fmt.Errorf("%s: %.40q is not a MAC address", field, written)
	case mac[0]&1 != 0 || [6]byte(mac) == [6]byte{}:
		return "", fmt.Errorf("%s: %s is not the address of one device", field, plain)
	}
	return plain, nil
}

func printMAC(b []byte) string { return strings.ReplaceAll(fmt.Sprintf("% x", b), " ", ":") }
