// Package service is what the services have in common around their own work: configuration from the environment, the
// connection to NATS, streams that have to be there, an HTTP server with probes, metrics and errors as RFC 9457 has
// them, event streams and WebSockets, NATS micro services, and the way all of that ends.
//
// It knows nothing of what a service does. Every part takes the service's name, which begins what it logs and returns.
package service
