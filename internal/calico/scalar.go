package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// asNumber is an AS number as Calico's tools write it: a JSON number, or a string that is decimal
// or "hi.lo" (RFC 5396 asdot+).
type asNumber uint32

func (a *asNumber) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		return json.Unmarshal(b, (*uint32)(a))
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	n, err := ParseASNumber(s)
	if err != nil {
		return wrongText(err)
	}
	*a = asNumber(n)
	return nil
}

// wrongText is an error of a text, quoted, which encoding/json completes with its field.
func wrongText(err error) error { return &json.UnmarshalTypeError{Value: err.Error()} }

// ParseASNumber reads an AS number in decimal or dotted form: "65546", "1.10".
func ParseASNumber(s string) (uint32, error) {
	if hi, lo, dotted := strings.Cut(s, "."); dotted {
		h, errHi := strconv.ParseUint(hi, 10, 16)
		l, errLo := strconv.ParseUint(lo, 10, 16)
		if errHi == nil && errLo == nil {
			return uint32(h<<16 | l), nil
		}
	} else if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), nil
	}
	return 0, fmt.Errorf("%q is not an AS number", s)
}

func asNumbers(in []asNumber) []uint32 {
	var out []uint32
	for _, a := range in {
		out = append(out, uint32(a))
	}
	return out
}

// duration is a Go duration in a string ("2m0s").
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return wrongText(fmt.Errorf("%q is not a duration", s))
	}
	*d = duration(v)
	return nil
}

// ParseNetwork reads a network: masked, unmapped, and /32 or /128 when there is no mask.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := parseHostPrefix(s)
	return p.Masked(), err
}

// parseHostPrefix reads a host's address with the length of its subnet, or without (then /32 or
// /128). An IPv4-mapped address becomes the IPv4 address that it means.
func parseHostPrefix(s string) (netip.Prefix, error) {
	text, length, found := strings.Cut(s, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", s)
	}
	bits := a.BitLen()
	if found {
		p, err := netip.ParsePrefix(text + "/" + length)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is not an address with a prefix length", s)
		}
		bits = p.Bits()
	}
	if a.Is4In6() {
		a, bits = a.Unmap(), bits-96
	}
	p := netip.PrefixFrom(a, bits)
	if !p.IsValid() {
		return netip.Prefix{}, fmt.Errorf("%q is shorter than the IPv4-mapped range", s)
	}
	return p, nil
}

// ParseHostPrefix reads a host's address of one family with the length of its subnet, or without;
// "" is none.
func ParseHostPrefix(s string, v6 bool) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, nil
	}
	p, err := parseHostPrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.Addr().Is6() != v6 {
		return netip.Prefix{}, fmt.Errorf("%q is of the other address family", s)
	}
	return p, nil
}

// ParseHostAddr reads an address of one family; "" is none. A prefix length is dropped: only the
// address is meant.
func ParseHostAddr(s string, v6 bool) (netip.Addr, error) {
	p, err := ParseHostPrefix(s, v6)
	return p.Addr(), err
}

// unmarshal decodes JSON and says which field is wrong, in terms of the resource rather than of Go.
func unmarshal(value []byte, into any) error {
	if len(value) == 0 {
		return errors.New("empty value")
	}
	err := json.Unmarshal(value, into)
	var wrongType *json.UnmarshalTypeError
	if !errors.As(err, &wrongType) {
		return err
	}
	text := wrongType.Value
	if !strings.HasPrefix(text, `"`) { // it is not wrongText's
		text = "cannot be a JSON " + text
	}
	return wrapField(wrongType.Field, errors.New(text))
}

// fieldError says what is wrong with a field.
type fieldError struct{ field, text string }

func (e fieldError) Error() string { return e.field + ": " + e.text }

// wrapField says of which field err is, which may be nil, or be of a field in that one.
func wrapField(field string, err error) error {
	inside := fieldError{}
	switch {
	case err == nil || field == "":
		return err
	case errors.As(err, &inside):
		return fieldError{field + "." + inside.field, inside.text}
	}
	return fieldError{field, err.Error()}
}
