// Package secrets looks up the passwords that Calico's resources name by secretKeyRef: in
// Kubernetes Secrets (Kube) or, without Kubernetes, in files (Dir). Only Lookup returns a password.
// Errors and log lines never contain one.
//
// Callers repeat their lookups, and so see when a secret has changed.
package secrets

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"vpp-route-agent/internal/calico"
)

// The forms that Kubernetes allows. References come from the datastore and become paths and URLs,
// so everything else is rejected.
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

// withoutLineEnd strips one line end, which an editor or echo has added.
func withoutLineEnd(raw []byte) string {
	password, ended := strings.CutSuffix(string(raw), "\n")
	if ended {
		password = strings.TrimSuffix(password, "\r")
	}
	return password
}
