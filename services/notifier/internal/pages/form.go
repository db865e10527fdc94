// Package pages has the pages that users reach by a link in a message, without signing in. One page switches a category off on
// a channel: by one POST, as in RFC 8058, or by a button that makes the POST. The other page has the user's preferences.
//
// A page needs only its link: there are no cookies that a browser adds to a request by itself. Another site that can make a request in
// a user's name already has the link, so the forms need no token against forged requests.
package pages

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// clock is the format of browsers for a time without a zone.
const clock = "2006-01-02T15:04"

// form is the form of a user's preferences.
type form struct {
	Cards    []card
	From, To string // of the quiet hours
	Notice   string
	State    string // fingerprint of the shown preferences
	Title    string
	Zone     string

	hours    [2]string // From and To before the change
	location *time.Location
	revision uint64 // of stored
	stored   contracts.Recipient
	who      Subject
}

// card is a category on the form, or all categories.
type card struct {
	rules.Category

	Boxes    []box
	Digest   string
	Digests  []option // none when no channel has digests
	Language string   // of Title
	Mute     string
	Title    string
}

// All reports whether a card is for all categories.
func (c card) All() bool { return c.Name == contracts.Anything }

// Late reports whether the notifications of a category can be delayed or muted.
func (c card) Late() bool {
	return slices.ContainsFunc(c.Boxes, func(b box) bool { return b.Channel != "inapp" })
}

// box is a channel of a card.
type box struct {
	Channel, Title string
	On             bool
}

// open fills in the form with the user's preferences.
func (f *form) open(categories []rules.Category) {
	known := f.stored
	now, err := schedule.In(known.TimeZone, time.Now())
	if err != nil { // as in the sender
		now = time.Now().UTC()
	}
	f.location, f.Zone = now.Location(), now.Location().String()
	if hours := known.QuietHours; hours != nil && hours.From != hours.To {
		f.From, f.To = hours.From, hours.To
	}
	f.hours = [2]string{f.From, f.To}
	for _, c := range categories {
		k := card{Category: c, Digest: f.stored.Digest[c.Name]}
		if k.Title, k.Language = c.Title(known.Locale); k.All() {
			k.Title = "Everything"
		}
		if c.Digest {
			k.Digests = chosen(k.Digest)
		}
		if until := f.stored.Mute[c.Name]; until.After(now) {
			k.Mute = until.In(f.location).Format(clock)
		}
		off := f.stored.OptOut[c.Name]
		for _, name := range c.Channels {
			on := !slices.Contains(off, name) && !slices.Contains(off, contracts.Anything)
			k.Boxes = append(k.Boxes, box{Channel: name, On: on, Title: cmp.Or(channels.Named(name).Title, name)})
		}
		f.Cards = append(f.Cards, k)
	}
	data, _ := json.Marshal([]any{categories, f.From, f.To, f.Zone})
	sum := sha256.Sum256(data)
	f.State = fmt.Sprintf("%d.%s", f.revision, hex.EncodeToString(sum[:8]))
}

// fill takes the values that a user has chosen, and reports whether they are exactly the fields of the form.
func (f *form) fill(values url.Values) bool {
	ok := true
	take := func(name string) string {
		value := values.Get(name)
		ok = ok && len(values[name]) == 1
		delete(values, name)
		return value
	}
	on := values["on"]
	delete(values, "on")
	for i := range f.Cards {
		c := &f.Cards[i]
		for j := range c.Boxes {
			b := &c.Boxes[j]
			at := slices.Index(on, c.Name+" "+b.Channel)
			if b.On = at >= 0; b.On {
				on = slices.Delete(on, at, at+1)
			}
		}
		if c.Digests != nil {
			c.Digest = take("digest." + c.Name)
			ok = ok && slices.ContainsFunc(c.Digests, func(o option) bool { return o.Value == c.Digest })
		}
		if c.Late() {
			c.Mute = take("mute." + c.Name)
		}
	}
	f.From, f.To = take("from"), take("to")
	take("state")
	return ok && len(values) == 0 && len(on) == 0
}

// wanted returns the preferences in the form, or the problem with it. Preferences that the form does not show stay.
func (f *form) wanted() (want contracts.Recipient, problem string) {
	want.RecipientType, want.UserID = f.who.Kind, f.who.UserID
	want.Digest, want.Mute, want.OptOut = copied(f.stored.Digest), copied(f.stored.Mute), copied(f.stored.OptOut)
	for _, c := range f.Cards {
		off := c.off(want.OptOut[c.Name])
		set(want.OptOut, c.Name, off, len(off) > 0)
		set(want.Digest, c.Name, c.Digest, c.Digest != "")
		until := want.Mute[c.Name]
		if c.Mute != until.In(f.location).Format(clock) {
			var err error
			if until, err = time.ParseInLocation(clock, c.Mute, f.location); c.Mute != "" && (err != nil || !until.After(time.Now())) {
				return want, c.Title + ": a pause needs a time that is to come. Nothing was saved."
			}
		}
		set(want.Mute, c.Name, until, c.Mute != "")
	}
	if want.QuietHours = f.stored.QuietHours; [2]string{f.From, f.To} != f.hours {
		want.QuietHours = &contracts.QuietHours{From: cmp.Or(f.From, "00:00"), To: cmp.Or(f.To, "00:00")} // quiet hours of no length
		_, fromErr := schedule.Clock(want.QuietHours.From)
		_, toErr := schedule.Clock(want.QuietHours.To)
		if (f.From == "") != (f.To == "") || fromErr != nil || toErr != nil {
			return want, "Quiet hours need both times, or none. Nothing was saved."
		}
	}
	return want, ""
}

// off returns the channels on which a user does not want a category: a list, changed by the boxes. A list that contains every
// channel stays, unless the user wants a channel.
func (c card) off(list []string) (off []string) {
	if slices.Contains(list, contracts.Anything) && !slices.ContainsFunc(c.Boxes, func(b box) bool { return b.On }) {
		return list
	}
	for _, name := range list {
		if name != contracts.Anything && !slices.Contains(c.Channels, name) {
			off = append(off, name)
		}
	}
	for _, b := range c.Boxes {
		if !b.On {
			off = append(off, b.Channel)
		}
	}
	return off
}

func copied[T any](m map[string]T) map[string]T {
	to := map[string]T{}
	maps.Copy(to, m)
	return to
}

// set sets a value of a map, or removes it when there is false.
func set[T any](m map[string]T, name string, value T, there bool) {
	if m[name] = value; !there {
		delete(m, name)
	}
}

// style is the style of all pages. It uses the reader's colour scheme, and controls that are large enough for a
// telephone.
//
//go:embed style.css
var style string

// policy lets a page load its style, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

//go:embed frame.html preferences.html style.css unsubscribe.html
var files embed.FS

// page returns the page with the main part in a file. Pages need no script and load no files.
func page(name string) *template.Template {
	return template.Must(template.ParseFS(files, "frame.html", "style.css", name))
}

func show(w http.ResponseWriter, status int, page *template.Template, data any) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	_ = page.Execute(w, data) // the client may have gone
	return nil
}
