package route

import "strings"

// An interface in another network namespace of Linux than the agent's has the path of the namespace
// before its name, as in /run/netns/blue/eth0. No interface of the agent's own namespace, and none
// of VPP, has a name that begins with a slash.

// InNamespace names a device in the namespace at an absolute path; "": the agent's own.
func InNamespace(path, device string) string {
	if path == "" {
		return device
	}
	return path + "/" + device
}

// SplitNamespace is the inverse of InNamespace.
func SplitNamespace(name string) (path, device string) {
	if !strings.HasPrefix(name, "/") {
		return "", name
	}
	i := strings.LastIndex(name, "/")
	return name[:i], name[i+1:]
}

// sameNamespace reports whether two interfaces may forward to each other.
func sameNamespace(a, b string) bool {
	a, _ = SplitNamespace(a)
	b, _ = SplitNamespace(b)
	return a == b
}
