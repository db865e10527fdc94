// Package api is what the notifier's APIs stand on: it takes events in, and answers what became of them and of their
// rows.
package api
