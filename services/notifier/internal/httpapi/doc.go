// Package httpapi serves the notifier over HTTP: publishing events, the states of events and rows, and inboxes.
package httpapi
