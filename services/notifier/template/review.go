package template

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// review finds the mistakes of a template that its parser does not find, and appends the function that makes values inert to
// every pipeline that prints a value of an event or a user. Texts of the template itself stay unchanged.
type review struct {
	*parser

	defines func(name string) bool // nil when the caller checks for missing templates in another way
	isMain  bool                   // not a template that another one calls: $ is Data

	layout, hasContent bool // of a layout: it calls the content
}

// node reviews a node. isData reports whether the dot is Data at the node.
func (r *review) node(node parse.Node, isData bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			r.node(child, isData)
		}
	case *parse.ActionNode:
		own := r.pipe(n.Pipe, isData)
		if len(n.Pipe.Decl) == 0 && !own {
			name := parse.NewIdentifier(inertName).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{name}})
		}
	case *parse.IfNode:
		r.branch(&n.BranchNode, isData, isData)
	case *parse.RangeNode:
		r.branch(&n.BranchNode, isData, false)
		stepped(n.List)
	case *parse.WithNode:
		r.branch(&n.BranchNode, isData, false)
	case *parse.TemplateNode:
		r.pipe(n.Pipe, isData)
		if r.defines != nil && !r.defines(n.Name) {
			r.notef(n, "template %q is not defined", n.Name)
		}
		if r.layout && n.Name == contentName {
			r.hasContent = true
			if given := n.Pipe.String(); (given != "." || !isData) && (given != "$" || !r.isMain) {
				r.notef(n, `want {{template "content" $}}, outside of definitions: the content is a template over all`)
			}
		}
	}
}

func (r *review) branch(n *parse.BranchNode, isData, isDataInside bool) {
	r.pipe(n.Pipe, isData)
	r.node(n.List, isDataInside)
	r.node(n.ElseList, isData)
}

// pipe reviews a pipeline, and reports whether its result is the template's own, made only of texts, functions, and fields
// that do not come from an event or a user.
func (r *review) pipe(n *parse.PipeNode, isData bool) (own bool) {
	own = n != nil
	if n == nil {
		return
	}
	for _, command := range n.Cmds {
		for _, argument := range command.Args {
			own = r.argument(argument, isData) && own
		}
	}
	return own
}

func (r *review) argument(node parse.Node, isData bool) (own bool) {
	switch n := node.(type) {
	case *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.IdentifierNode:
		return true
	case *parse.PipeNode:
		return r.pipe(n, isData)
	case *parse.ChainNode:
		return r.argument(n.Node, isData)
	case *parse.FieldNode:
		return isData && r.field(n, n.Ident)
	case *parse.VariableNode:
		return r.isMain && n.Ident[0] == "$" && len(n.Ident) > 1 && r.field(n, n.Ident[1:])
	}
	return false
}

// field checks that fields and methods of Data exist, and reports whether the value of the first one comes neither from
// an event nor from a user.
func (r *review) field(node parse.Node, names []string) (own bool) {
	t := reflect.TypeFor[Data]()
	for _, name := range names {
		if t.Kind() == reflect.Interface || t.Kind() == reflect.Map {
			break
		}
		if method, ok := t.MethodByName(name); ok {
			t = method.Type.Out(0)
			continue
		}
		field, ok := reflect.StructField{}, false
		if t.Kind() == reflect.Struct {
			field, ok = t.FieldByName(name)
		}
		if !ok || !field.IsExported() {
			r.notef(node, ".%s: there is no %s", strings.Join(names, "."), name)
			return false
		}
		t = field.Type
	}
	return slices.Contains([]string{"Category", "Channel", "CreatedAt", "Preferences", "RecipientType", "Unsubscribe"}, names[0])
}

// notef records a mistake at a node.
func (r *review) notef(node parse.Node, format string, args ...any) {
	file, line := place(node)
	r.mistakef(file, line, format, args...)
}

// place returns the file and the line of a node.
func place(node parse.Node) (file string, line int) {
	location, _ := new(parse.Tree).ErrorContext(node)
	parts := atPlace.FindStringSubmatch(location)
	line, _ = strconv.Atoi(parts[2]) // digits
	return parts[1], line
}

// atPlace matches the parser's text for the place of a node: file, line and column.
var atPlace = lazyregexp.New(`^(.*):([0-9]+):[0-9]+$`)
