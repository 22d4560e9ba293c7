package main

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// notShown stands for what is no endpoint.
const notShown = "(not shown: there may be a password in it)"

// plainEndpoint has a host and a port and nothing else.
var plainEndpoint = regexp.MustCompile(
	`^(https?://)?([\w.-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]):[0-9]+/?$`)

// plainHost has no colon, which stands before a password.
var plainHost = regexp.MustCompile(`^(https?://)?[\w.-]+/?$`)

// shownEndpoints is a comma list of endpoints without users and passwords. A password may have each
// character that separates, also @ and comma, so all before the last @ may be of it.
func shownEndpoints(text string) string {
	at := strings.LastIndexByte(text, '@')
	parts := strings.Split(text[at+1:], ",")
	for i, p := range parts {
		// What follows an @ without a port may be the end of a password.
		if !isEndpoint(p) && (at >= 0 || !isHost(p)) {
			parts[i] = notShown
		}
	}
	list := strings.Join(parts, ",")
	if at < 0 {
		return list
	}
	return schemeOf.FindString(text) + "(user)@" + list
}

var schemeOf = regexp.MustCompile(`^https?://`)

func isEndpoint(text string) bool {
	return plainEndpoint.MatchString(strings.TrimSpace(text))
}

func isHost(text string) bool {
	text = strings.TrimSpace(text)
	_, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return text == "" || err == nil || plainHost.MatchString(text)
}

var userInURL = regexp.MustCompile(`://.*@`)

// withoutPasswords takes users and passwords out of a setting that is no list of endpoints.
func withoutPasswords(text string) string {
	return userInURL.ReplaceAllString(text, "://(user)@")
}

var (
	afterScheme = regexp.MustCompile(`://`)
	// beforeUser is where a user may stand in endpoints, which may lack a scheme.
	beforeUser = regexp.MustCompile(`^|,|://`)
)

// mostAts bounds how many @ after one place are tried as the end of a password: a text may have
// hundreds of URLs.
const mostAts = 16

// passwordsIn are all that may be the password in a text that has URLs, however malformed: from the
// first colon after each place where a user may stand, up to each of the next @.
func passwordsIn(text string, before *regexp.Regexp) (all []string) {
	for _, start := range before.FindAllStringIndex(text, -1) {
		rest := text[start[1]:]
		for i, ats := 0, 0; i < len(rest) && ats < mostAts; i++ {
			if rest[i] == '@' {
				all, ats = append(all, passwordOf(rest[:i])...), ats+1
			}
		}
	}
	return all
}

// passwordOf is the password of a user, as it is and unquoted.
func passwordOf(user string) (all []string) {
	_, password, _ := strings.Cut(user, ":")
	if strings.HasPrefix(password, "//") { // what was before it is a scheme
		return nil
	}
	all = append(all, password)
	if plain, err := url.PathUnescape(password); err == nil && plain != password {
		all = append(all, plain)
	}
	return all
}

// leastPiece is the shortest piece of a password that is searched for on its own: a shorter one is
// in many words.
const leastPiece = 6

// endpointPasswords are all that may be passwords in a comma list of endpoints, and pieces of them:
// an error about an endpoint may quote one up to a character that separates.
func endpointPasswords(list string) (all []string) {
	all = passwordsIn(list, beforeUser)
	for part := range strings.SplitSeq(list, ",") {
		if !isEndpoint(part) && !isHost(part) && !strings.Contains(part, "@") {
			all = append(all, passwordOf(schemeOf.ReplaceAllString(part, ""))...)
		}
	}
	for _, password := range all {
		if strings.Contains(password, "://") { // it has another endpoint
			continue
		}
		for _, piece := range strings.FieldsFunc(password, func(r rune) bool {
			return strings.ContainsRune("/@,?#", r)
		}) {
			if len(piece) >= leastPiece && !isEndpoint(piece) {
				all = append(all, piece)
			}
		}
	}
	return all
}
