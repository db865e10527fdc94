// Package httpapi serves the importer over HTTP: imports, their events as SSE and over WebSocket, recipes, and the routes for
// operators and load balancers.
package httpapi
