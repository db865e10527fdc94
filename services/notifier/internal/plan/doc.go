// Package plan turns an event into its plan: who is told, and on which channels, decided once and for all.
//
// A plan is committed by one write, of its record at notify.plan.<event>, which the stream takes only where there is
// none. A small plan is all in the record. The entries of a large one are in pages, written before it to subjects that
// name the try, so that what two planners found out never mixes: the record names the try whose pages count. Pages that
// no record names are left to the age of the stream.
//
// Beside the plan, which lives as long as its stream keeps it, a record in the bucket of deliveries says which payload
// came under an event's id, and whether it was planned. It stays for 40 days after its last change.
package plan
