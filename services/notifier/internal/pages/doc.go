// Package pages has the pages that users reach by a link out of a message, without signing in. One switches a category off on a
// channel: by one POST, as RFC 8058 has it, or by a button that makes it. The other one has the user's preferences.
//
// A link is all that its page needs, and a browser adds nothing to a request by itself: there is no cookie. Another site that can make
// a request in a user's name has the link already, so the forms need no further token against forged requests.
package pages
