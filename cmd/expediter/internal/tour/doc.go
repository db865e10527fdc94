// Package tour is the page that a newcomer sees first: a search whose PENDING places turn into links, a pasted recipe that is read, and an
// inbox that a notification arrives in. Each part is live by the event stream of its service, of which the page repeats each event as
// HTML under the id that the service gave it: a browser that comes back goes on behind the last one.
package tour
