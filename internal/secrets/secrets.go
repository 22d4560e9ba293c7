// Package secrets finds the passwords that Calico's resources name by secretKeyRef: in Kubernetes Secrets (Kube) or, where there is no
// Kubernetes, in files (Dir). It gives a password to whoever asks for it by name and to nothing else: no error and no log line contains one.
//
// Lookups are asked again and again: a changed secret shows in the next one.
package secrets

import (
	"errors"
	"fmt"
	"regexp"

	"vpp-route-agent/internal/calico"
)

// The forms that Kubernetes allows. References come from the datastore and end in paths and URLs, so nothing else gets there.
var (
	nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	keyForm  = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)
)

func checkRef(ref calico.SecretKeyRef) error {
	if !nameForm.MatchString(ref.Name) {
		return fmt.Errorf("%.64q is no name of a secret", ref.Name)
	}
	if !keyForm.MatchString(ref.Key) || ref.Key == "." || ref.Key == ".." {
		return fmt.Errorf("%.64q is no key of a secret", ref.Key)
	}
	return nil
}

var errEmpty = errors.New("it is empty")
