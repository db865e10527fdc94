// Package httpapi serves the notifier over HTTP: publishing events, the states of events and notifications, and inboxes.
package httpapi
