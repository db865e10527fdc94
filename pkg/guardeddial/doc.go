// Package guardeddial connects to places that strangers name, and to none inside: whoever can have a server call an address
// must not reach what only that server can.
//
// A name is resolved by the dialer, and every address that it leads to is checked right before it is dialled: nothing can
// change between the check and the use. An HTTP client is guarded by its transport, redirects included:
//
//	transport := &http.Transport{DialContext: guardeddial.Guard{}.Dialer().DialContext}
package guardeddial
