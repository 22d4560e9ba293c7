package vpp

import "fmt"

// apiError is a return value of VPP. GoVPP's list is that of an older VPP, where -52 differs.
type apiError int32

// The return values used here (VPP 25.10, src/vnet/error.h).
const (
	noSuchInterface apiError = -2
	noSuchFIB       apiError = -3
	noSuchEntry     apiError = -6
	// noSuchCrossConnect is what plugin l3xc says, and others when a value is wrong.
	noSuchCrossConnect apiError = -7

	systemCall1        apiError = -11
	systemCall4        apiError = -14
	subInterfaceExists apiError = -68
	invalidInterface   apiError = -71
	interfaceExists    apiError = -79

	tunnelExists  apiError = -75
	entryExists   apiError = -116
	instanceInUse apiError = -147

	addressInUse     apiError = -105 // what IPv4 says of an address that is in the way
	duplicateAddress apiError = -127 // and IPv6
)

var apiErrorNames = map[apiError]string{
	-1:               "unspecified error",
	noSuchInterface:  "invalid sw_if_index",
	noSuchFIB:        "no such table",
	noSuchEntry:      "no such entry",
	-7:               "invalid value",
	systemCall1:      "a system call failed",
	-12:              "a system call failed",
	-13:              "a system call failed",
	systemCall4:      "a system call failed",
	-52:              "no paths in route",
	-54:              "no matching interface",
	-59:              "address length mismatch",
	-60:              "address not found for interface",
	-71:              "invalid interface",
	-73:              "invalid argument",
	interfaceExists:  "the interface exists already",
	-114:             "the interface has addresses",
	entryExists:      "the entry exists already",
	tunnelExists:     "the tunnel exists already",
	-76:              "no such graph node",
	-82:              "source and destination are one address",
	instanceInUse:    "the number is another interface's",
	-65:              "no such classify table",
	addressInUse:     "the address conflicts with another one",
	duplicateAddress: "the address conflicts with another one",
	-171:             "invalid prefix length",
}

// name is a label for metrics.
func (e apiError) name() string {
	if name, ok := apiErrorNames[e]; ok {
		return name
	}
	return fmt.Sprintf("VPP error %d", int32(e))
}

func (e apiError) Error() string {
	if name, ok := apiErrorNames[e]; ok {
		return fmt.Sprintf("%s (VPP error %d)", name, int32(e))
	}
	return e.name()
}

// vppError returns the error of a return value, nil for 0.
func vppError(retval int32) error {
	if retval == 0 {
		return nil
	}
	return apiError(retval)
}
