// Package httpapi serves the enricher over HTTP: requests, their events as SSE and over WebSocket, and the routes for
// operators and load balancers.
package httpapi
