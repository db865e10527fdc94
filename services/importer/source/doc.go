// Package source fetches what a recipe is made from: the captions of a video, a caption file, a page, or a photo.
//
// [New] returns [Sources], which chooses by the address or by the type of a [Request] how to read it. Identify gives the
// identity of the source without touching the network, so that two requests for one video are seen to be the same. Fetch
// returns the [Material], which can be encoded as JSON and holds all that an extractor gets to see.
//
// Every failure is an [Error]: a code, a message for a person, and whether trying again can help.
//
// # What is not trusted
//
// Addresses come from strangers. Only http and https are fetched, and no address of a private, loopback or link-local
// network is dialled, by its address, by a name or by a redirect, unless [Config.AllowNetworks] holds it. Sizes and
// times are bounded by [Config], and [Material.Truncated] reports that a bound has cut something.
package source
