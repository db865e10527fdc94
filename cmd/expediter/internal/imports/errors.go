package imports

import (
	"errors"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/pkg/service"
)

var (
	// ErrNotFound is returned when the importer knows no such job or recipe.
	ErrNotFound = errors.New("not found")

	// ErrNoRoute is returned when the server that answers does not have the route: it is no importer, or one that
	// stores its recipes in another service.
	ErrNoRoute = errors.New("this is not known")

	// ErrUnavailable is returned when no importer answers, or the one that answers cannot work.
	ErrUnavailable = errors.New("unavailable")
)

// RefusedError is returned for a request that the importer did not take.
type RefusedError struct {
	// Problem is the importer's answer.
	Problem service.Problem

	// URL is the importer's.
	URL string
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := e.Problem.Detail
	if len(e.Problem.Errors) > 0 {
		fields := make([]string, len(e.Problem.Errors))
		for i, f := range e.Problem.Errors {
			fields[i] = strings.TrimPrefix(f.Path, "/") + " " + f.Problem
		}
		text = strings.Join(fields, "; ")
	}
	return fmt.Sprintf("the importer at %s refuses: %s", e.URL, text)
}
