// Package pipeline runs the whole of Expediter in this process, on an embedded NATS server, or talks to a service that
// runs elsewhere.
package pipeline
