package route

import "fmt"

// InTable wants an interface to be in a table but 0, for one family.
type InTable struct {
	Interface string
	Table     Table
}

func (i InTable) Key() ObjectKey {
	return ObjectKey{InterfaceTable, i.Interface, i.Table.family()}
}

func (i InTable) Digest() uint64     { return digestOf(fmt.Sprint(i.Table.ID)) }
func (i InTable) Needs() []ObjectKey { return []ObjectKey{LinkKey(i.Interface), i.Table.Key()} }
func (i InTable) Marked() bool       { return false }

// Excludes is VPP's rule (src/vnet/interface_api.c, ip_table_bind): an interface with an address
// cannot be moved.
func (i InTable) Excludes(k ObjectKey) bool {
	a, err := AddressOf(k)
	return err == nil && a.Interface == i.Interface && a.Address.Addr().Is6() == i.Table.IPv6
}

// InTableOf returns what k identifies, without the table's number and name.
func InTableOf(k ObjectKey) (InTable, error) {
	i := InTable{Interface: k.Interface}
	if i.Table.IPv6 = k != i.Key(); k != i.Key() {
		return i, fmt.Errorf("%s is not about the table of an interface", k)
	}
	return i, nil
}
