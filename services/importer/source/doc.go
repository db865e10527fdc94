// Package source fetches what a recipe is made from: the captions of a video, a caption file, a page, or a photo.
//
// [New] returns [Sources], which reads a source by the address or the type of a [Request]. Identify returns the identity
// of the source without using the network, so that two requests for one video have the same identity. Fetch returns the
// [Material], which can be encoded as JSON and has all that an extractor gets.
//
// Every failure is an [Error]: a code, a message for a person, and whether trying again can help.
//
// # What is not trusted
//
// Addresses come from strangers. Only http and https are fetched, and an address in a private, loopback or link-local
// network is not dialled, whether given directly, by a name or by a redirect, unless [Config.AllowNetworks] contains
// it. Sizes and times are bounded by [Config], and [Material.Truncated] reports that a bound has cut something.
package source
