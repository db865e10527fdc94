package natstest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Frame is one message on its way through a Proxy.
type Frame struct {
	FromClient bool   // and to the server
	Raw        []byte // as on the wire, with its line
	Reply      string
	Subject    string

	subscribes bool
}

// Payload returns the payload of the message, after its headers if it has any.
func (f Frame) Payload() []byte {
	_, payload, _ := bytes.Cut(f.Raw, []byte("\r\n"))
	return bytes.TrimSuffix(payload, []byte("\r\n"))
}

// With returns a message from the server to the same subscription with other content, as Proxy.Change takes it. The
// first headers bytes of the content are headers.
func (f Frame) With(content []byte, headers int) []byte {
	words := strings.Fields(string(f.Raw[:bytes.IndexByte(f.Raw, '\n')]))
	line := fmt.Sprintf("MSG %s %s %d", words[1], words[2], len(content))

	if headers > 0 {
		line = fmt.Sprintf("HMSG %s %s %d %d", words[1], words[2], headers, len(content))
	}
	return fmt.Appendf(nil, "%s\r\n%s\r\n", line, content)
}

// readFrame reads one line, and the payload after it if it announces one. Other lines than those of messages have no
// subject.
func readFrame(r *bufio.Reader, fromClient bool) (Frame, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return Frame{}, fmt.Errorf("read a line: %w", err)
	}

	f := Frame{FromClient: fromClient, Raw: line}

	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}

	f.subscribes = fromClient && words[0] == "SUB"

	var fixed int // words that are there without a reply

	switch words[0] {
	case "PUB":
		fixed = 3
	case "HPUB", "MSG":
		fixed = 4
	case "HMSG":
		fixed = 5
	default:
		return f, nil
	}

	if len(words) < fixed {
		return Frame{}, fmt.Errorf("%w: %q", errNoFrame, line)
	}

	f.Subject = words[1]

	if len(words) > fixed {
		f.Reply = words[2]

		if !fromClient {
			f.Reply = words[3]
		}
	}

	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil || size < 0 {
		return Frame{}, fmt.Errorf("%w: %q", errNoFrame, line)
	}

	payload := make([]byte, size+len("\r\n"))

	if _, err := io.ReadFull(r, payload); err != nil {
		return Frame{}, fmt.Errorf("read a payload of %d bytes: %w", size, err)
	}

	f.Raw = append(f.Raw, payload...)
	return f, nil
}

var errNoFrame = errors.New("not a line of the protocol")
