package service

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Environment returns the environment of this process, by name.
func Environment() map[string]string { return env.ToMap(os.Environ()) }

// Read fills the fields of a Config whose tags name environment variables. Every value that cannot be read, and every
// variable that begins with the service's name in capitals and is none of the Config's, is reported at once.
func Read[Config any](name string, environment map[string]string, cfg *Config) error {
	known := variables[Config]()
	errs := unreadable(name, env.ParseWithOptions(cfg, env.Options{Environment: environment}), known, environment)
	for _, variable := range slices.Sorted(maps.Keys(environment)) {
		if strings.HasPrefix(variable, strings.ToUpper(name)+"_") && !slices.Contains(slices.Collect(maps.Values(known)), variable) {
			errs = append(errs, fmt.Errorf("%s: unknown environment variable %s: is it misspelt?", name, variable))
		}
	}
	return errors.Join(errs...)
}

// variables are the names of the variables by those of the fields.
func variables[Config any]() map[string]string {
	names := map[string]string{}
	if reflect.TypeFor[Config]().Kind() != reflect.Struct {
		return nil // the parser says so
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) { // also those of embedded structs
		if variable := field.Tag.Get("env"); variable != "-" && variable != "" {
			names[field.Name] = variable
		}
	}
	return names
}

// unreadable names the variables in the errors of the parser, which speaks of fields.
func unreadable(name string, err error, names, environment map[string]string) []error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return []error{err}
	}
	errs := make([]error, len(all.Errors))
	for i, err := range all.Errors {
		errs[i] = fmt.Errorf("%s: %w", name, err)
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			variable := names[parse.Name]
			errs[i] = fmt.Errorf("%s: %s is %q: want a value of the kind %s: %w", name, variable, environment[variable], parse.Type, parse.Err)
		}
	}
	return errs
}
