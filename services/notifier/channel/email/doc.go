// Package email sends messages as mails. It hands them to one server over SMTP, with STARTTLS unless configured otherwise,
// and uses connections for several mails.
//
// A mail has the same Message-ID in every attempt, so that a mail client that receives it twice can drop the second. It has
// text and HTML, and headers that mark it as sent by a program. If users can unsubscribe, it has the headers of RFC 8058,
// for unsubscribing with one click.
//
// The codes of the server, and those of RFC 3463, decide whether a refusal is final or the mail may be accepted later. When
// the connection breaks after the end of a mail has been sent, the outcome is unknown: the mail is sent again, under the
// same Message-ID.
package email
