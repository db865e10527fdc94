package doctor

import (
	"net/url"
	"os"
	"regexp"
	"strings"
)

// secretName is a variable that holds a secret, not the name of a file with one.
var secretName = regexp.MustCompile(`(PASSWORD|SECRETS?|TOKEN|OPENAI_KEY|WEBPUSH_KEY|_PROXY)$`)

// secrets are the values of the environment that must not be shown: those of such variables, in the files that they name, and the
// users and queries of addresses.
func secrets(environment map[string]string) (all []string) {
	const short = 4 // what everything has somewhere
	add := func(values ...string) {
		for _, v := range values {
			if v = strings.TrimSpace(v); len(v) >= short {
				all = append(all, v)
			}
		}
	}
	for name, value := range environment {
		if path, file := strings.CutSuffix(name, "_FILE"); file && secretName.MatchString(path) {
			if info, err := os.Stat(value); err == nil && info.Mode().IsRegular() {
				data, _ := os.ReadFile(value) //nolint:errcheck,gosec // the operator names it, and a check finds mistakes
				add(strings.Split(string(data), "\n")...)
			}
		}
		if secretName.MatchString(name) {
			add(value)
			add(strings.Split(value, ",")...)
		}
		for address := range strings.SplitSeq(value, ",") {
			u, err := url.Parse(address)
			if err != nil || u.Host == "" {
				continue
			}
			password, _ := u.User.Password()
			add(password, u.RawQuery)
			for _, values := range u.Query() {
				add(values...)
			}
		}
	}
	return all
}

// clean takes the secrets out of a text.
func (e *examination) clean(text string) string {
	for _, s := range e.secrets {
		text = strings.ReplaceAll(text, s, "...")
	}
	return text
}
