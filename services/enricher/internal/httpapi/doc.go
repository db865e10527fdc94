// Package httpapi serves the enricher over HTTP: requests, their events as SSE and over WebSocket, and what operators
// and load balancers ask.
package httpapi
