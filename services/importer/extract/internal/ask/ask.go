// Package ask makes of a source the text for a service that reads recipes, bounded and without sentences that speak to a model,
// asks the service, and classifies failures.
package ask

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

const (
	maxAnswer     = 1 << 20
	maxErrorBody  = 16 << 10
	maxRetryAfter = time.Hour

	// costOfByte is the memory, in bytes, that one byte of an answer can take as a recipe: a list may have empty
	// ingredients.
	costOfByte = 100
)

// Post sends a question as JSON and returns the body of a 200. The same question has the same Idempotency-Key. The error is an
// [*extract.Error], which wraps a [*StatusError] where there was another answer; or it wraps the cause of ctx when that has ended.
func Post(ctx context.Context, client *remote.Client, path string, question any) ([]byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, extract.Failed(false, err, "the request cannot be made")
	}
	sum := sha256.Sum256(body)
	answer, err := client.Call(ctx, http.MethodPost, path, body, hex.EncodeToString(sum[:]), maxAnswer)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("extract: %w", context.Cause(ctx))
	case answer.Status != 0 && answer.Status != http.StatusOK:
		return nil, statusError(&StatusError{
			Body: answer.Body[:min(len(answer.Body), maxErrorBody)], RetryAfter: retryAfter(answer.Header), Status: answer.Status,
		})
	case err != nil:
		return nil, unanswered(err, client.Timeout())
	case len(answer.Body) > maxAnswer:
		return nil, extract.Failed(false, nil, "the answer is longer than %d bytes", maxAnswer)
	}
	if err := memory.More(ctx, costOfByte*int64(len(answer.Body))); err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// unanswered returns the error of a call without a whole answer.
func unanswered(err error, timeout time.Duration) *extract.Error {
	failed := extract.Failed(true, err, "the connection failed")
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		failed = extract.Failed(true, err, "no complete answer within %s", timeout)
	}
	failed.Outage = true
	return failed
}

// StatusError is an answer that is not 200.
type StatusError struct {
	// Body is the beginning of the body. It is not part of the text of the error: a service may repeat the request in it.
	Body []byte
	// RetryAfter is the wait that the service asked for, at most an hour; zero when it asked for none.
	RetryAfter time.Duration
	// Status is the HTTP status.
	Status int
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d", e.Status) }

// statusError returns the error of a status.
func statusError(cause *StatusError) *extract.Error {
	retryable, out, reason := true, true, "it is out of order"
	switch status := cause.Status; {
	case status == http.StatusTooManyRequests:
		reason = "too many calls"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		reason = "it ran out of time"
	case status == http.StatusConflict, status == http.StatusTooEarly:
		out, reason = false, "the same call is still under way"
	case status >= http.StatusInternalServerError:
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		reason = "it refuses the token"
	case status == http.StatusRequestEntityTooLarge:
		retryable, reason = false, "the source is too long for it"
	case status >= http.StatusBadRequest:
		retryable, reason = false, "it does not take such a call"
	case status >= http.StatusMultipleChoices:
		retryable, reason = false, "it redirects, which is not followed"
	default:
		out, reason = false, "only 200 carries an answer"
	}
	failed := extract.Failed(retryable, cause, "%s (HTTP %d)", reason, cause.Status)
	failed.Outage = retryable && out
	failed.Refused = cause.Status == http.StatusUnauthorized || cause.Status == http.StatusForbidden
	if retryable {
		failed.RetryAfter = cause.RetryAfter
	}
	return failed
}

// retryAfter reads the wait that the service asks for: the milliseconds that some services send, or the header.
func retryAfter(header http.Header) time.Duration {
	if millis, err := strconv.ParseUint(header.Get("Retry-After-Ms"), 10, 31); err == nil {
		return min(time.Duration(millis)*time.Millisecond, maxRetryAfter)
	}
	return retry.After(header, 0, maxRetryAfter)
}

// Bounds of the parts other than the transcript, in bytes, and in entries for chapters.
const (
	maxTitle       = 500
	maxDescription = 32 << 10
	maxChapters    = 200
)

// Digest is the part of a source that the service gets.
type Digest struct {
	// Chapters and Transcript have a line for each part, "[12.34s] text", or without the stamp when there are no times.
	Chapters, Transcript string
	// Title is one line, Description has as many as the source.
	Title, Description string
	// Cut reports whether a part was too long, Instructed whether sentences were left out because they address a model.
	Cut, Instructed bool
	// Timed reports whether the transcript has stamps.
	Timed bool
}

// NewDigest makes the digest of a source. It cuts the transcript between two segments, to at most so many bytes.
func NewDigest(in extract.Input, maxTranscript int) Digest {
	d := Digest{Timed: len(in.Segments) > 0 && !in.Untimed}
	d.Title = d.line(in.Title, maxTitle)
	if !in.Untimed || len(in.Segments) == 0 || !strings.Contains(in.Description, in.Segments[0].Text) { // otherwise both are one text
		d.Description = d.description(in.Description)
	}
	d.Chapters = d.chapters(in.Chapters)
	d.Transcript = d.transcript(in.Segments, maxTranscript)
	return d
}

// Warnings returns warnings about the digest for the reader of the recipe.
func (d Digest) Warnings() []recipe.Warning {
	var out []recipe.Warning
	if d.Cut {
		out = append(out, recipe.Warning{Code: extract.WarnSourceCut, Text: "The source is longer than is read; its end was left out."})
	}
	if d.Instructed {
		out = append(out, recipe.Warning{
			Code: extract.WarnInstructions, Text: "The source gives instructions to a model; those sentences were left out.",
		})
	}
	return out
}

// line returns a bounded line, or nothing when it speaks to a model.
func (d *Digest) line(text string, most int) string {
	if len(text) > most {
		text, d.Cut = redact.Clip(text, most), true
	}
	text = strings.Join(strings.Fields(words.Plain(text)), " ")
	if words.Speaks(text) {
		d.Instructed = true
		return ""
	}
	return text
}

func (d *Digest) description(text string) string {
	if len(text) > maxDescription {
		text, d.Cut = redact.Clip(text, maxDescription), true
	}
	var b strings.Builder
	for line := range strings.Lines(extract.PlainText(text)) {
		b.WriteString(d.line(line, maxDescription) + "\n")
	}
	return strings.TrimSpace(b.String())
}

func (d *Digest) chapters(chapters []extract.Chapter) string {
	if len(chapters) > maxChapters {
		chapters, d.Cut = chapters[:maxChapters], true
	}
	segments := make([]caption.Segment, 0, len(chapters))
	for _, c := range chapters {
		if title := d.line(c.Title, maxTitle); title != "" {
			segments = append(segments, caption.Segment{Start: max(0, c.Start), Text: title})
		}
	}
	return render(segments, true)
}

// transcript leaves out segments that address a model, by themselves or together with the segment before.
func (d *Digest) transcript(segments []caption.Segment, most int) string {
	const stamp = len("[000000.00s] \n")
	lines := make([]caption.Segment, 0, len(segments))
	size := 0
	for _, s := range segments {
		text := strings.Join(strings.Fields(words.Plain(redact.Clip(s.Text, most))), " ")
		if text == "" {
			continue
		}
		if size += len(text) + stamp; size > most {
			d.Cut = true
			break
		}
		lines = append(lines, caption.Segment{Start: max(0, s.Start), Text: text})
	}
	kept := lines[:0:0]
	before := ""
	for i, suspect := range suspects(lines) {
		text := lines[i].Text
		alone := suspect && words.Speaks(text)
		if alone || suspect && before != "" && words.Speaks(before+" "+text) {
			if !alone {
				kept = kept[:len(kept)-1]
			}
			d.Instructed, before = true, ""
			continue
		}
		kept, before = append(kept, lines[i]), text
	}
	return render(kept, d.Timed)
}

// suspects reports which lines have to be examined one by one: the lines of a stretch that addresses a model as a whole.
// Examining takes longer than all other work, and hardly any stretch needs it. Each stretch begins with the last line of
// the one before.
func suspects(lines []caption.Segment) []bool {
	const stretch = 3000
	out := make([]bool, len(lines))
	for from := 0; from < len(lines); {
		var all strings.Builder
		end := from
		for end < len(lines) && (end == from || all.Len()+len(lines[end].Text) < stretch) {
			all.WriteString(lines[end].Text + " ")
			end++
		}
		if all.Len() >= stretch || words.Speaks(all.String()) {
			for i := from; i < min(end+1, len(lines)); i++ {
				out[i] = true
			}
		}
		if end == len(lines) {
			break
		}
		from = max(from+1, end-1)
	}
	return out
}

// render writes a line for each segment, in the form of the importer's API.
func render(segments []caption.Segment, timed bool) string {
	var b strings.Builder
	_ = caption.Transcript{Segments: segments, Timed: timed}.WriteText(&b) // a builder takes everything
	return b.String()
}

// maxBraces bounds the places in an answer at which the object of a recipe is looked for.
const maxBraces = 20

// Object returns the one object in an answer that has the members of a recipe, without the prose, the code fence or the objects around
// it; nil when there is none, or more than one. Ingredients and steps that are texts become objects.
func Object(answer string) []byte {
	var found map[string]json.RawMessage
	for range maxBraces {
		begin := strings.IndexByte(answer, '{')
		if begin < 0 {
			break
		}
		answer = answer[begin:]
		var members map[string]json.RawMessage
		d := json.NewDecoder(strings.NewReader(answer))
		if d.Decode(&members) != nil || members["ingredients"] == nil && members["steps"] == nil {
			answer = answer[1:]
			continue
		}
		if found != nil {
			return nil
		}
		found, answer = members, answer[d.InputOffset():]
	}
	if found == nil {
		return nil
	}
	for list, member := range map[string]string{"ingredients": "item", "steps": "text"} {
		if found[list] != nil {
			found[list] = objects(found[list], member)
		}
	}
	object, _ := json.Marshal(found)
	return object
}

// number matches the number at the beginning of a line.
var number = lazyregexp.New(`^\s*(?:[-*•]|(?:(?i:step)\s*)?\d{1,2}[.):])\s+`)

// objects makes objects with one member of a text, by its lines, and of the texts in a list. It returns anything else as it is.
func objects(list json.RawMessage, member string) json.RawMessage {
	var entries []json.RawMessage
	object := func(text string) json.RawMessage {
		out, _ := json.Marshal(map[string]string{member: text})
		return out
	}
	var text string
	if json.Unmarshal(list, &text) == nil {
		for line := range strings.Lines(text) {
			entries = append(entries, object(number.ReplaceAllString(strings.TrimSpace(line), "")))
		}
	} else if json.Unmarshal(list, &entries) != nil {
		return list
	}
	for i := range entries {
		if text = ""; json.Unmarshal(entries[i], &text) == nil && text != "" {
			entries[i] = object(text)
		}
	}
	out, _ := json.Marshal(entries)
	return out
}
