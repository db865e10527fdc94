// Package email tells users by mail, which it hands to one server over SMTP: with STARTTLS, unless something else is asked for,
// and over connections that are used again.
//
// A mail has the same Message-ID in every try, so that whoever gets it twice can drop the second. It carries text and HTML, and
// says that a program sent it. Where users can switch it off, it says so as RFC 8058 wants: one click, without a question.
//
// What a server refuses for good is told from what it may take later by its codes, and those of RFC 3463. When the connection
// breaks after the end of a mail has been sent, nobody knows whether it was taken: it is sent again, under the same Message-ID.
package email
