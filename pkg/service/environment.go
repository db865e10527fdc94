package service

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// placeholder stands for the service's name in the tags of [BaseConfig].
const placeholder = "SERVICE_"

// Config is a pointer to a struct that embeds [BaseConfig].
type Config interface{ base() *BaseConfig }

// FromEnvironment is [Read] with the environment and the standard error of this process.
func FromEnvironment(name string, cfg Config) error {
	return Read(name, env.ToMap(os.Environ()), os.Stderr, cfg)
}

// Read fills in the fields of a configuration whose tags name environment variables, and sets its Logger, which writes
// to stderr. The variable with _FILE behind its name names a file that has the value. It reports at once every value that cannot be
// read, and every variable that begins with the service's name in capitals and is unknown.
func Read(name string, environment map[string]string, stderr io.Writer, cfg Config) error {
	prefix := strings.ToUpper(name) + "_"
	known, set := map[string]string{}, map[string]string{} // variables by the names of fields; values by those in tags
	files := values{}
	var errs []error
	for _, field := range reflect.VisibleFields(reflect.TypeOf(cfg).Elem()) {
		tag := field.Tag.Get("env")
		if tag == "" || tag == "-" {
			continue
		}
		variable := tag
		if rest, shared := strings.CutPrefix(tag, placeholder); shared { // and not IMPORTER_RECIPE_SERVICE_URL
			variable = prefix + rest
		}
		known[field.Name] = variable
		value, ok := environment[variable]
		if path, named := environment[variable+fileSuffix]; named {
			var err error
			if value, err = files.read(path, field.Type.Kind() == reflect.Slice); ok {
				err = fmt.Errorf("%s is set, too", variable)
			}
			if ok = err == nil; !ok {
				errs = append(errs, fmt.Errorf("%s: %s: %w", name, variable+fileSuffix, err))
			}
		}
		if ok {
			set[tag] = value
		}
	}
	errs = append(errs, unreadable(name, env.ParseWithOptions(cfg, env.Options{Environment: set}), known, environment)...)
	for _, variable := range slices.Sorted(maps.Keys(environment)) {
		if strings.HasPrefix(variable, prefix) && !slices.Contains(slices.Collect(maps.Values(known)), strings.TrimSuffix(variable, fileSuffix)) {
			errs = append(errs, fmt.Errorf("%s: unknown environment variable %s: is it misspelt?", name, variable))
		}
	}
	base := cfg.base()
	if len(files) > 0 {
		base.values = files
	}
	base.Logger = NewLogger(stderr, base.LogLevel)
	return errors.Join(errs...)
}

// unreadable names the variables in the errors of the parser, which names fields.
func unreadable(name string, err error, names, environment map[string]string) []error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return []error{err}
	}
	errs := make([]error, len(all.Errors))
	for i, err := range all.Errors {
		errs[i] = fmt.Errorf("%s: %w", name, err)
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			want := "a value of the kind " + parse.Type.String()
			if parse.Type == reflect.TypeFor[slog.Level]() {
				want = "debug, info, warn or error"
			}
			variable := names[parse.Name]
			errs[i] = fmt.Errorf("%s: %s is %q: want %s: %w", name, variable, environment[variable], want, parse.Err)
		}
	}
	return errs
}
