// Package imports talks to a running importer over HTTP: it submits sources, follows their imports, and reads recipes.
package imports
