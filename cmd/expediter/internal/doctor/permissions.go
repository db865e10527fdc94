package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Users of deploy/nats beside the services.
const (
	userAdmin     = "admin"
	userPublisher = "publisher"
	userSys       = "sys"
)

// Users are the users of deploy/nats.
func Users() []string {
	return []string{userAdmin, contracts.ServiceEnricher, contracts.ServiceImporter, contracts.ServiceNotifier, userPublisher, userSys}
}

// CheckUser returns an error for a name that is not of such a user.
func CheckUser(name string) error {
	if name == "" || slices.Contains(Users(), name) {
		return nil
	}
	return fmt.Errorf("--as %q: use one of %s", name, strings.Join(Users(), ", "))
}

var deniedText = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// deniedSubject returns the subject of a permissions violation.
func deniedSubject(err error) (subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	m := deniedText.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	return m[2], true
}
