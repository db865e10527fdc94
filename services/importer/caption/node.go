package caption

import (
	"iter"
	"strings"
	"time"
)

// NodeKind states what a Node is.
type NodeKind int

// The kinds.
const (
	// RootNode is the whole cue.
	RootNode NodeKind = iota
	// ElementNode is a tag and what it encloses.
	ElementNode
	// TextNode is text.
	TextNode
	// TimeNode is a timestamp: what follows is said from then on.
	TimeNode
)

// Node is a part of a cue's text, as the rules for building the text's DOM have it.
type Node struct {
	// Kind states which of the other fields mean something.
	Kind NodeKind

	// Annotation of an ElementNode is the name of the speaker (tag v) or the language (tag lang).
	Annotation string

	// At is the time of a TimeNode.
	At time.Duration

	// Children are the parts of a RootNode or ElementNode, in order.
	Children []*Node

	// Classes of an ElementNode, in order.
	Classes []string

	// Tag of an ElementNode: b, c, i, lang, rt, ruby, u or v.
	Tag string

	// Text of a TextNode, with character references replaced.
	Text string
}

// Markup takes the text of a WebVTT cue apart. Any text will do: tags that are unknown, out of place or not closed are
// handled as the rules say.
func Markup(text string) *Node {
	root := &Node{Kind: RootNode}
	open := []*Node{root}
	x := lexer{rest: text}
	for {
		t, ok := x.next()
		if !ok {
			return root
		}
		current := open[len(open)-1]
		switch t.kind {
		case textToken:
			current.Children = append(current.Children, &Node{Kind: TextNode, Text: t.text})
		case timeToken:
			current.Children = append(current.Children, &Node{Kind: TimeNode, At: t.at})
		case startToken:
			if element := t.element(current); element != nil {
				current.Children = append(current.Children, element)
				open = append(open, element)
			}
		case endToken:
			open = open[:len(open)-closes(current, t.name)]
		}
	}
}

// All returns the nodes below n in the order of the text, with their depth: 0 for a child of n. It does not recurse, so no
// text is too deep for it.
func (n *Node) All() iter.Seq2[int, *Node] {
	return func(yield func(int, *Node) bool) {
		levels := [][]*Node{n.Children}
		for len(levels) > 0 {
			top := len(levels) - 1
			if len(levels[top]) == 0 {
				levels = levels[:top]
				continue
			}
			node := levels[top][0]
			levels[top] = levels[top][1:]
			if !yield(top, node) {
				return
			}
			levels = append(levels, node.Children)
		}
	}
}

// element returns the element that a start tag makes inside of current, nil when it makes none.
func (t token) element(current *Node) *Node {
	element := &Node{Kind: ElementNode, Tag: t.name}
	switch t.name {
	case "b", "c", "i", "ruby", "u":
	case "rt":
		if current.Tag != "ruby" {
			return nil
		}
	case "lang", "v":
		element.Annotation = strings.Join(strings.FieldsFunc(unescape(t.annotation), asciiSpace), " ")
	default:
		return nil
	}
	for class := range strings.SplitSeq(t.classes, ".") {
		if class != "" {
			element.Classes = append(element.Classes, class)
		}
	}
	return element
}

// closes returns how many elements an end tag closes: the innermost one when it has that name, and with the end of a ruby
// the rt in it as well.
func closes(current *Node, name string) int {
	switch {
	case current.Kind != ElementNode:
		return 0
	case current.Tag == name:
		return 1
	case current.Tag == "rt" && name == "ruby":
		return 2
	}
	return 0
}

func asciiSpace(r rune) bool { return strings.ContainsRune(" \t\n\f\r", r) }
