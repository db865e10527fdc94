// Package imports talks to a running importer over HTTP: it hands in sources, follows what becomes of them, and reads
// recipes.
package imports
