// Package httpapi serves the importer over HTTP: imports, their events as SSE, recipes, and what operators and load
// balancers ask.
package httpapi
