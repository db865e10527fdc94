package email

import (
	"context"
	"errors"
	"net/textproto"
	"strings"
	"unicode"

	"github.com/wneessen/go-mail"

	"github.com/expediter-io/expediter/services/notifier/channel"
)

// result is what came of handing over a mail.
type result struct {
	code        int                // of the server's reply, 0 when there was none
	enhanced    string             // the one of RFC 3463, "" when there was none
	err         error              // nil when the server has taken the mail
	interrupted bool               // the connection was closed from here
	response    string             // what the server said when it took the mail
	stage       mail.SendErrReason // how far it came
}

// healthy reports whether the connection can be used for another mail.
func (r result) healthy() bool {
	if r.interrupted {
		return false
	}
	refused := r.code != 0 && r.code != 421 && (r.stage == mail.ErrSMTPRcptTo || r.stage == mail.ErrSMTPDataClose)
	return r.err == nil || refused
}

// stale reports whether this is what a connection looks like that the server has closed, with nothing taken.
func (r result) stale() bool {
	return r.stage != mail.ErrSMTPDataClose && (r.code == 0 || r.code == 421)
}

// failed says what a result means.
func (e *Email) failed(ctx context.Context, r result) error {
	if r.code != 0 {
		return e.fail(judge(r.stage, r.code, r.enhanced), r.code, clip(r.err.Error()), nil)
	}
	if r.stage != mail.ErrSMTPDataClose {
		return e.unsent(ctx, r.stage.String(), nil)
	}
	// The end of the mail was sent, or may have been: the server may have taken it.
	kind := channel.KindUnknown
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		kind = channel.KindInterrupted
	case ctx.Err() != nil:
		kind = channel.KindTimeout
	}
	return e.fail(kind, 0, "the connection broke before the server said whether it takes the mail", nil)
}

// unsent is the error of a mail that the server has not been given.
func (e *Email) unsent(ctx context.Context, detail string, cause error) error {
	if err := context.Cause(ctx); err != nil && cause == nil {
		cause = err
	}
	return e.fail(channel.KindUnavailable, 0, detail, cause)
}

// undialled says what it means that there is no connection.
func (e *Email) undialled(ctx context.Context, err error) error {
	reply, replied := errors.AsType[*textproto.Error](err)
	switch {
	case replied && reply.Code >= 530 && reply.Code <= 538:
		return e.fail(channel.KindMisconfigured, reply.Code, "the server refuses the user", nil)
	case replied:
		return e.fail(channel.KindUnavailable, reply.Code, clip(reply.Msg), nil)
	case strings.Contains(err.Error(), "does not support"), errors.Is(err, mail.ErrNoSupportedAuthDiscovered):
		// What of STARTTLS and AUTH is asked of it, the server cannot do: the library has no other name for it.
		return e.fail(channel.KindMisconfigured, 0, clip(err.Error()), nil)
	}
	return e.unsent(ctx, clip(err.Error()), nil)
}

// judge says what a reply means at a stage.
func judge(stage mail.SendErrReason, code int, enhanced string) channel.Kind {
	subject, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(enhanced, "5."), "4."), ".")
	switch {
	case code == 421 && subject == "7", code == 450 && subject == "7", code == 451 && subject == "7":
		return channel.KindRateLimited
	case code < 500:
		return channel.KindUnavailable
	case code == 530, code == 534, code == 535, code == 538:
		return channel.KindMisconfigured
	case enhanced == "5.1.7", enhanced == "5.1.8": // the sender's address
		return channel.KindMisconfigured
	case subject == "1", enhanced == "5.2.1": // nobody there, or not any more
		return channel.KindBounced
	case stage == mail.ErrSMTPMailFrom && subject != "3": // 5.3.4 is a mail that is too big
		return channel.KindMisconfigured
	case stage == mail.ErrSMTPRcptTo && enhanced == "" && (code == 550 || code == 551 || code == 553):
		return channel.KindBounced
	}
	return channel.KindRejected
}

// maxReply is how much of what the server says is kept, in bytes.
const maxReply = 300

// clip keeps what the server says short and on one line.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > maxReply {
		text = strings.ToValidUTF8(text[:maxReply], "") + "…"
	}
	return strings.TrimSpace(text)
}
