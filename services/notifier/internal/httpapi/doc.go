// Package httpapi serves the notifier over HTTP: events in, what became of them and of their rows, and inboxes.
package httpapi
