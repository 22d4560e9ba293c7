package bgp

import (
	"fmt"
	"strconv"
	"strings"
)

// Community is a standard community "aa:nn" (RFC 1997) or a large one "aa:nn:mm" (RFC 8092).
type Community struct {
	Large        bool
	Global       uint32 // of a standard one 16 bits, as Data1
	Data1, Data2 uint32 // Data2 is 0 in a standard one
}

// ParseCommunity reads both forms, in decimal, as Calico's API allows them.
func ParseCommunity(text string) (Community, error) {
	fields := strings.Split(text, ":")
	bits := 16
	switch len(fields) {
	case 2:
	case 3:
		bits = 32
	default:
		return Community{}, fmt.Errorf("community %q is neither aa:nn nor aa:nn:mm", text)
	}
	var n [3]uint32
	for i, f := range fields {
		v, err := strconv.ParseUint(f, 10, bits)
		if err != nil {
			return Community{}, fmt.Errorf("community %q: %q is not a number of %d bits",
				text, f, bits)
		}
		n[i] = uint32(v)
	}
	return Community{Large: bits == 32, Global: n[0], Data1: n[1], Data2: n[2]}, nil
}

func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.Global, c.Data1, c.Data2)
	}
	return fmt.Sprintf("%d:%d", c.Global, c.Data1)
}
