package recorder

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/cespare/xxhash/v2"
)

// Digest is a hash of all that v has, behind pointers too, by which two processes compare. Values
// that reflect.DeepEqual calls equal have one digest.
func Digest(v any) uint64 {
	var d digester
	d.value(reflect.ValueOf(v))
	return xxhash.Sum64(d)
}

// digester is what is hashed: different values have different bytes.
type digester []byte

// What a value begins with.
const (
	hashedNothing byte = iota
	hashedBool
	hashedNumber
	hashedText
	hashedAddress
	hashedList
	hashedMap
)

var (
	addressType = reflect.TypeFor[netip.Addr]()
	prefixType  = reflect.TypeFor[netip.Prefix]()
)

func (d *digester) number(kind byte, n uint64) {
	*d = binary.AppendUvarint(append(*d, kind), n)
}

func (d *digester) text(s string) {
	d.number(hashedText, uint64(len(s)))
	*d = append(*d, s...)
}

func (d *digester) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		d.number(hashedNothing, 0)
	case reflect.Bool:
		d.number(hashedBool, map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.number(hashedNumber, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.number(hashedNumber, v.Uint())
	case reflect.String:
		d.text(v.String())
	case reflect.Pointer:
		d.value(v.Elem())
	case reflect.Interface:
		if d.value(v.Elem()); !v.IsNil() {
			d.text(v.Elem().Type().String())
		}
	case reflect.Struct:
		d.fields(v)
	case reflect.Slice:
		if v.IsNil() {
			d.number(hashedNothing, 0)
			return
		}
		fallthrough
	case reflect.Array:
		d.number(hashedList, uint64(v.Len()))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		d.items(v)
	default:
		panic(fmt.Sprintf("recorder: a %v has no digest", v.Type()))
	}
}

// fields writes a struct. Addresses, most of what a plan has, are written as others read them.
func (d *digester) fields(v reflect.Value) {
	if is := v.Type(); v.CanInterface() && (is == addressType || is == prefixType) {
		*d = append(*d, hashedAddress, 0)
		at := len(*d)
		if is == addressType {
			*d, _ = v.Interface().(netip.Addr).AppendBinary(*d) // without an error
		} else {
			*d, _ = v.Interface().(netip.Prefix).AppendBinary(*d)
		}
		(*d)[at-1] = byte(len(*d) - at)
		return
	}
	for i := range v.NumField() {
		d.value(v.Field(i))
	}
}

// items writes a map, whatever the order in which it is walked.
func (d *digester) items(v reflect.Value) {
	if v.IsNil() {
		d.number(hashedNothing, 0)
		return
	}
	sum, at := uint64(0), len(*d)
	for all := v.MapRange(); all.Next(); {
		d.value(all.Key())
		d.value(all.Value())
		sum += xxhash.Sum64((*d)[at:])
		*d = (*d)[:at]
	}
	d.number(hashedMap, uint64(v.Len()))
	d.number(hashedMap, sum)
}
