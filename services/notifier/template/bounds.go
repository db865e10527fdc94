package template

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	text "text/template"
	"text/template/parse"
	"time"
)

// bounded is the output of one execution, which ends when it has become too long, has too many steps or takes too long.
type bounded struct {
	bytes.Buffer

	steps int
	until time.Time
}

func newBounded() *bounded { return &bounded{until: time.Now().Add(MaxTime)} }

// Write is called for each text and value, and, by way of stepped, for each turn of a loop and each template.
func (b *bounded) Write(data []byte) (int, error) {
	b.steps++
	switch {
	case b.steps > MaxSteps:
		return 0, ErrTooManySteps
	case b.Len()+len(data) > MaxText:
		return 0, ErrTooLong
	case time.Now().After(b.until):
		return 0, ErrTooSlow
	}
	return b.Buffer.Write(data) //nolint:wrapcheck // it has none
}

// stepped puts an empty text, which is written like any other, before the nodes of a list.
func stepped(list *parse.ListNode) {
	if list != nil {
		list.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText, Pos: list.Pos}}, list.Nodes...)
	}
}

// named adds the name of the template to an error that has none.
func named(t executor, err error) error {
	if errors.Is(err, ErrTooManySteps) || errors.Is(err, ErrTooLong) || errors.Is(err, ErrTooSlow) {
		return fmt.Errorf("template %s: %w", t.Name(), err)
	}
	return err
}

// wide is a verb whose width or precision is large, or one of the arguments.
var wide = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

// boundedFunctions replace those of text/template that make texts of any length.
func boundedFunctions() map[string]any {
	return map[string]any{
		"html": within(text.HTMLEscaper), "js": within(text.JSEscaper), "urlquery": within(text.URLQueryEscaper),
		"print": within(fmt.Sprint), "println": within(fmt.Sprintln),
		"printf": func(format string, args ...any) (string, error) {
			total, err := sizeOf(args)
			if err != nil || wide.MatchString(format) || strings.Count(format, "%")*(total+1000) > 16*MaxText {
				return "", ErrTooLong
			}
			return short(fmt.Sprintf(format, args...))
		},
	}
}

// within bounds what a function gets and returns.
func within(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		if _, err := sizeOf(args); err != nil {
			return "", err
		}
		return short(f(args...))
	}
}

func short(made string) (string, error) {
	if len(made) > MaxText {
		return "", ErrTooLong
	}
	return made, nil
}

// sizeOf returns the length of values as text, and ErrTooLong when that is more than MaxText.
func sizeOf(values []any) (total int, err error) {
	for _, value := range values {
		if total += len(fmt.Sprint(value)); total > MaxText {
			return 0, ErrTooLong
		}
	}
	return total, nil
}
