package openapi

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// module is the prefix of the paths of all packages.
const module = "github.com/expediter-io/expediter/"

// Comments are the comments of types and their fields. They read the sources of a package when they are first asked for one of its types.
type Comments struct {
	root string // the folder of the repository
	read map[string]map[string]string
	err  error
}

// NewComments returns the comments of the sources below the root of the repository.
func NewComments(root string) *Comments {
	return &Comments{root: root, read: map[string]map[string]string{}}
}

// Lookup returns the comment of a field, or of the type itself without a name, "" for none. It is for [jsonschema.Reflector].
func (c *Comments) Lookup(t reflect.Type, field string) string {
	path, ours := strings.CutPrefix(t.PkgPath(), module)
	if !ours {
		return ""
	}
	all, known := c.read[path]
	if !known {
		var reflector jsonschema.Reflector
		directory := filepath.Join(c.root, filepath.FromSlash(path))
		if err := reflector.AddGoComments("x", directory); err != nil && c.err == nil {
			c.err = fmt.Errorf("openapi: comments of %s: %w", path, err)
		}
		// The reader joins the base and the folder to a path that no package has.
		all = map[string]string{}
		prefix := filepath.ToSlash(filepath.Join("x", directory)) + "."
		for key, comment := range reflector.CommentMap {
			if name, ok := strings.CutPrefix(key, prefix); ok {
				all[name] = strings.ReplaceAll(comment, "\n", " ")
			}
		}
		c.read[path] = all
	}
	name, _, _ := strings.Cut(t.Name(), "[") // without the arguments of a generic type
	if field != "" {
		name += "." + field
	}
	return all[name]
}

// Err returns the first error of reading sources.
func (c *Comments) Err() error { return c.err }
