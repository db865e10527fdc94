package servicetest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// fact has the properties of a handler in the sources: the parameters that it reads, and the statuses of its answers. The fact of a
// function has the names of the functions that it calls.
type fact struct {
	body       bool
	calls      []string
	good       map[int]bool
	parameters map[string]bool
}

func newFact() *fact { return &fact{good: map[int]bool{}, parameters: map[string]bool{}} }

// statuses returns the good statuses in order. A handler that names none answers 200.
func (f *fact) statuses() (all []string) {
	for _, status := range slices.Sorted(maps.Keys(f.good)) {
		all = append(all, strconv.Itoa(status))
	}
	if len(all) == 0 {
		return []string{"200"}
	}
	return all
}

// parse returns the facts of the handlers of all routes that a folder's sources add, by pattern. It follows calls by name, if the name is
// that of a function of the package.
func parse(folder string) (map[string]*fact, error) {
	functions, handlers := map[string]*fact{}, map[string]ast.Expr{}
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, fmt.Errorf("servicetest: %w", err)
		}
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
				f := newFact()
				f.read(function.Body)
				functions[function.Name.Name] = f
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 3 && strings.HasPrefix(called(call), "Handle") {
				if pattern := literal(call.Args[0]); pattern != "" {
					handlers[pattern] = call.Args[2]
				}
			}
			return true
		})
	}
	routes := map[string]*fact{}
	for pattern, handler := range handlers {
		f := newFact()
		f.read(handler)
		f.follow(functions)
		routes[pattern] = f
	}
	return routes, nil
}

// follow adds the facts of all called functions.
func (f *fact) follow(functions map[string]*fact) {
	known := map[string]bool{"ServeHTTP": true}
	for len(f.calls) > 0 {
		name := f.calls[0]
		f.calls = f.calls[1:]
		function := functions[name]
		if known[name] || function == nil {
			continue
		}
		known[name] = true
		f.body = f.body || function.body
		f.calls = append(f.calls, function.calls...)
		maps.Copy(f.good, function.good)
		maps.Copy(f.parameters, function.parameters)
	}
}

// goodStatuses are the names of the statuses below 400.
var goodStatuses = func() map[string]int {
	all := map[string]int{}
	for status := range http.StatusBadRequest {
		if text := http.StatusText(status); text != "" {
			all["Status"+strings.ReplaceAll(text, " ", "")] = status
		}
	}
	return all
}()

// read adds the facts of a part of a program.
func (f *fact) read(part ast.Node) {
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.calls = append(f.calls, n.Name)
		case *ast.SelectorExpr:
			f.calls = append(f.calls, n.Sel.Name)
			if status := goodStatuses[n.Sel.Name]; status > 0 {
				f.good[status] = true
			}
			_, plain := n.X.(*ast.Ident) // a package or a variable: a function may have the same name
			return !plain
		case *ast.CallExpr:
			f.call(n)
		}
		return true
	})
}

func (f *fact) call(call *ast.CallExpr) {
	switch name := called(call); name {
	case "Body":
		f.body = true
	case "LastEventID":
		f.parameters["header Last-Event-ID"], f.parameters["query last_event_id"] = true, true
	case "OpenStream", "Write":
		f.good[http.StatusOK] = true
	case "ServeContent":
		f.good[http.StatusOK], f.good[http.StatusNotModified], f.parameters["header If-None-Match"] = true, true, true
	case "ServeSocket":
		f.good[http.StatusSwitchingProtocols] = true
	case "params":
		for _, arg := range call.Args[1:] {
			f.parameters["query "+literal(arg)] = true
		}
	case "Get", "Has":
		text := literal(call.Args[0])
		of, _ := call.Fun.(*ast.SelectorExpr)
		if selected, ok := of.X.(*ast.SelectorExpr); ok && selected.Sel.Name == "Header" && text != "Content-Type" {
			f.parameters["header "+text] = true
		} else if !ok && text != "" {
			f.parameters["query "+text] = true
		}
	}
}

// called returns the name of the called function, without its package or receiver.
func called(call *ast.CallExpr) string {
	switch function := call.Fun.(type) {
	case *ast.Ident:
		return function.Name
	case *ast.SelectorExpr:
		return function.Sel.Name
	}
	return ""
}

// literal returns a text that is written out, "" for anything else.
func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		text, err := strconv.Unquote(l.Value)
		if err == nil {
			return text
		}
	}
	return ""
}
