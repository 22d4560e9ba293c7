package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vpp-route-agent/internal/support"
	"vpp-route-agent/internal/yamldoc"
)

// podToken is where Kubernetes puts the token of a pod's account.
const podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// keyFiles are the settings that name a file of which all is secret.
var keyFiles = []string{"--etcd-password-file", "--etcd-key-file", "--k8s-key-file",
	"--tls-key-file"}

// secretName is in the names of variables and keys whose values are secret.
var secretName = regexp.MustCompile(`(?i)passw|secret|token|credential|private|key-data|(^|_)key$`)

// secrets are what must not be in the archive, as far as it can be found out: of settings, of the
// files that they name, and of an environment. unread are what could not be read, and why.
func (s *supportCall) secrets(environment []string) (_ *support.Secrets, unread []string) {
	f := secretFinder{}
	if s.cfgError != nil {
		f.unread = append(f.unread, "settings of this call: "+s.cfgError.Error())
	}
	for _, x := range settings {
		if x.secret {
			f.add(s.cfg.texts[x.name()])
		}
	}
	f.add(s.cfg.etcdPassword)
	for _, texts := range []map[string]string{s.cfg.texts, s.running} {
		for _, x := range settings {
			if x.endpoints {
				f.all = append(f.all, endpointPasswords(texts[x.name()])...)
			}
		}
		for _, text := range texts {
			f.addURLs(text)
		}
		for _, name := range keyFiles {
			f.addFile(texts[name])
		}
		f.addKubeconfig(texts["--kubeconfig"])
		f.addTree(texts["--password-dir"])
	}
	f.addTree(defaultPasswordDir)
	f.addFile(podToken)
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		f.addURLs(value)
		if isEndpointsVariable(name) { // which is not in s.cfg if that could not be read
			f.all = append(f.all, endpointPasswords(value)...)
		}
		if secretName.MatchString(name) && !isHarmless(value) {
			f.add(value)
		}
	}
	return support.NewSecrets(f.all), f.unread
}

// isHarmless reports whether a value is no secret, though a variable's name says so: a switch, a
// number, or where a file is. Left out everywhere they would spoil the archive.
func isHarmless(value string) bool {
	if value == "true" || value == "false" || strings.Trim(value, "0123456789.") == "" {
		return true
	}
	_, err := os.Stat(value)
	return err == nil && filepath.IsAbs(value)
}

func isEndpointsVariable(name string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool {
		return s.endpoints && slices.Contains(s.envNames(), name)
	})
}

type secretFinder struct{ all, unread []string }

func (f *secretFinder) add(secret string) { f.all = append(f.all, secret) }

// addURLs takes the passwords of a comma list of URLs.
func (f *secretFinder) addURLs(text string) {
	f.all = append(f.all, passwordsIn(text, afterScheme)...)
	for part := range strings.SplitSeq(text, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil { // it may lack a scheme
			password, _ := u.User.Password()
			f.add(password)
		}
	}
}

func (f *secretFinder) addFile(path string) {
	if text := f.read(path); text != nil {
		f.add(string(text))
	}
}

// read returns nil for a file that is not there.
func (f *secretFinder) read(path string) []byte {
	if path == "" {
		return nil
	}
	text, err := readFile(path, maxSettings)
	if err != nil {
		f.failed(err)
		return nil
	}
	return text
}

func (f *secretFinder) failed(err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		f.unread = append(f.unread, err.Error())
	}
}

// addTree takes the files of a directory of passwords. Kubernetes mounts Secrets with links.
func (f *secretFinder) addTree(dir string) {
	if dir == "" {
		return
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			f.failed(err)
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			f.addFile(path)
		}
		return nil
	})
	if err != nil {
		f.failed(err)
	}
}

// addKubeconfig takes what a kubeconfig has of users: tokens, passwords and keys, there or in files
// that it names.
func (f *secretFinder) addKubeconfig(path string) {
	if path == noNodes { // a word of reflector-controller, and no file
		return
	}
	text := f.read(path)
	if text == nil {
		return
	}
	var doc struct {
		Users []any `json:"users"`
	}
	asJSON, err := yamldoc.One(text)
	if err == nil {
		err = json.Unmarshal(asJSON, &doc)
	}
	if err != nil {
		f.unread = append(f.unread, path+": "+err.Error())
		return
	}
	f.addUser(filepath.Dir(path), "", doc.Users)
}

// addUser goes through what is below a key of a kubeconfig.
func (f *secretFinder) addUser(dir, key string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.addUser(dir, key, e)
		}
	case map[string]any:
		for k, e := range v {
			f.addUser(dir, k, e)
		}
	case string:
		switch {
		case key == "tokenFile" || key == "client-key":
			if !filepath.IsAbs(v) {
				v = filepath.Join(dir, v)
			}
			f.addFile(v)
		case key == "value" || secretName.MatchString(key): // "value": of a variable for exec
			f.add(v)
			if plain, err := base64.StdEncoding.DecodeString(v); err == nil {
				f.add(string(plain))
			}
		}
	}
}
