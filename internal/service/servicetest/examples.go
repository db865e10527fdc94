package servicetest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Case is a request of a route. An empty body and missing parameters stand for those of the example.
type Case struct {
	Body, Query string
	Header      map[string]string
	Path        map[string]string

	plain bool // not to open a WebSocket
}

// uncommon are the statuses that depend on the caller or the state of a service.
var uncommon = []string{"401", "403", "421", "429", "500", "503", "507"}

// Examples sends every example of a description to a service. The routes in first come first, in that order. The others follow: first
// routes that create, then routes that read, change and delete. Each must be answered with a good status.
//
// Examples then asks for the bad statuses that the description names. It sends bodies that are not JSON or too large, invalid parameters,
// unknown ids, and the requests in cases, by pattern and status, such as "POST /v1/events 409". It reports each described status that no
// request got. The client has the [Description.Transport].
func (d *Description) Examples(t *testing.T, client *http.Client, base string, first []string, cases map[string]Case) {
	t.Helper()
	methods := []string{http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}
	rank := func(pattern string) int {
		method, _, _ := strings.Cut(pattern, " ")
		return slices.Index(methods, method)
	}
	rest := slices.SortedFunc(maps.Keys(d.operations), func(a, b string) int {
		order := strings.Compare(a, b)
		if strings.HasPrefix(a, http.MethodDelete) {
			order = -order // delete the parts before the whole
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), order)
	})
	rest = slices.DeleteFunc(rest, func(pattern string) bool { return slices.Contains(first, pattern) })
	order := slices.Concat(first, rest)
	for _, pattern := range order {
		for _, c := range d.examples(pattern) {
			if status, text := d.send(t, client, base, pattern, c); status >= http.StatusBadRequest {
				t.Errorf("%s with the example %+v is answered %d: %s", pattern, c, status, text)
			}
		}
	}
	for _, pattern := range order {
		for _, c := range d.mistakes(pattern) {
			d.send(t, client, base, pattern, c)
		}
	}
	d.oddities(t, client, base, order)
	for name, c := range cases {
		pattern := name[:strings.LastIndexByte(name, ' ')]
		if d.operations[pattern] == nil {
			t.Errorf("there is no route of the case %s", name)
			continue
		}
		if c.Body == "" {
			c.Body = d.examples(pattern)[0].Body
		}
		d.send(t, client, base, pattern, c)
	}
	for pattern, operation := range d.operations {
		for status := range at(operation, "responses") {
			if name := pattern + " " + status; !d.seen[name] && !slices.Contains(uncommon, status) {
				t.Errorf("%s is described, and no request was answered so", name)
			}
		}
	}
}

// odd are values that no double and no text has.
var odd = []json.RawMessage{[]byte("1e999999999"), []byte("-1e-999999999"), []byte(`"\ud800"`)}

// oddities sends the examples with an odd value in the place of each value in turn. None is answered as a fault of the service, and the
// answer to a number that is refused names its member.
func (d *Description) oddities(t *testing.T, client *http.Client, base string, order []string) {
	t.Helper()
	if tr, ok := client.Transport.(transport); ok {
		client = &http.Client{Transport: tr.next} // the validator of schemas would compute with the numbers
	}
	for _, pattern := range order {
		for _, c := range d.examples(pattern) {
			for _, c.Body = range withOdd(c.Body) {
				status, text := d.send(t, client, base, pattern, c)
				tolerable(t, pattern, c.Body, status, text)
			}
		}
	}
}

func tolerable(t *testing.T, operation, body string, status int, text string) {
	t.Helper()
	named := strings.Contains(text, `"path":"/`) || strings.Contains(text, "got a number") || strings.Contains(body, `"\ud800"`)
	if status >= 500 || status == http.StatusBadRequest && !named {
		t.Errorf("%s with %s is answered %d: %s", operation, body, status, text)
	}
}

// withOdd returns the variants of a JSON body that have an odd value in the place of one value, or in a member that nobody knows.
func withOdd(body string) (all []string) {
	var doc any
	if json.Unmarshal([]byte(body), &doc) != nil {
		return nil
	}
	var vary func(old any, set func(any))
	vary = func(old any, set func(any)) {
		for _, value := range odd {
			set(value)
			if data, err := json.Marshal(doc); err == nil {
				all = append(all, string(data))
			}
		}
		set(old)
		switch v := old.(type) {
		case []any:
			for i, item := range v {
				vary(item, func(x any) { v[i] = x })
			}
		case node:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				vary(v[name], func(x any) { v[name] = x })
			}
			vary(nil, func(x any) { v["n"] = x })
			delete(v, "n")
		}
	}
	vary(doc, func(x any) { doc = x })
	return all
}

// examples returns a request for each example of a route: of its body, and of each optional parameter.
func (d *Description) examples(pattern string) (all []Case) {
	content := at(d.operations[pattern], "requestBody", "content")
	for _, media := range slices.SortedFunc(maps.Keys(content), jsonFirst) {
		examples := at(content, media, "examples")
		if one := at(content, media)["example"]; one != nil {
			examples = node{"one": node{"value": one}}
		}
		for _, example := range examples {
			c := Case{Header: map[string]string{"Content-Type": media}}
			body, isText := object(example)["value"].(string)
			if data, err := json.Marshal(object(example)["value"]); err == nil && !isText {
				body = string(data)
			}
			c.Body = body
			if media == form {
				c = formCase(object(example)["value"])
			}
			all = append(all, c)
		}
	}
	if all == nil {
		all = []Case{{}}
	}
	for name, p := range d.parameters(pattern) {
		value, ok := p["example"].(string)
		in, name, _ := strings.Cut(name, " ")
		c := Case{Body: all[0].Body, Header: maps.Clone(all[0].Header)}
		switch {
		case !ok || p["required"] == true:
			continue
		case in == "query":
			c.Query = url.Values{name: {value}}.Encode()
		default:
			if c.Header == nil {
				c.Header = map[string]string{}
			}
			c.Header[name] = value
		}
		all = append(all, c)
	}
	return all
}

// jsonFirst orders types of bodies: cases and mistakes are made from the first example.
func jsonFirst(a, b string) int {
	rank := map[string]int{"application/json": -1, form: 1}
	return cmp.Or(cmp.Compare(rank[a], rank[b]), strings.Compare(a, b))
}

// mistakes returns requests of a route that should get the described bad statuses.
func (d *Description) mistakes(pattern string) (all []Case) {
	good, responses := d.examples(pattern)[0], at(d.operations[pattern], "responses")
	if responses["400"] != nil {
		c, values := good, url.Values{}
		for name, p := range d.parameters(pattern) {
			if in, name, _ := strings.Cut(name, " "); in == "query" && p["required"] != true {
				values.Set(name, "?")
			}
		}
		if c.Query = values.Encode(); good.Body != "" {
			c.Body = "{"
		} else if names := wildcard.FindAllString(pattern, -1); len(names) > 1 {
			c.Path = map[string]string{strings.Trim(names[0], "{}"): "?"}
		}
		all = append(all, c)
	}
	if responses["404"] != nil {
		c := good
		if names := wildcard.FindAllString(pattern, -1); len(names) > 0 {
			c.Path = map[string]string{strings.Trim(names[len(names)-1], "{}"): "nobody"}
		}
		values := url.Values{}
		for name, p := range d.parameters(pattern) {
			if in, name, _ := strings.Cut(name, " "); in == "query" && p["required"] == true {
				values.Set(name, "nobody")
			}
		}
		c.Query = values.Encode()
		all = append(all, c)
	}
	if responses["413"] != nil {
		c := good
		c.Body = strings.Repeat("x", 9<<20)
		all = append(all, c)
	}
	if responses["426"] != nil {
		all = append(all, Case{plain: true})
	}
	return all
}

// send makes one request, and reads its answer or the answer's first event. A route that can answer that nothing has changed is asked
// again.
func (d *Description) send(t *testing.T, client *http.Client, base, pattern string, c Case) (status int, text string) {
	t.Helper()
	resp, err := client.Do(d.request(t, base, pattern, c))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	responses := at(d.operations[pattern], "responses")
	header, known := "If-None-Match", resp.Header.Get("ETag")
	if strings.HasPrefix(resp.Header.Get("Content-Type"), eventStream) {
		header, known = "Last-Event-ID", lastEvent(resp.Body, responses["204"] != nil)
	} else {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(body)
	}
	again := header == "Last-Event-ID" && responses["204"] != nil || responses["304"] != nil
	if again && known != "" && c.Header[header] == "" {
		c.Header = map[string]string{header: known} // as a client that has the whole answer
		d.send(t, client, base, pattern, c)
	}
	return resp.StatusCode, text
}

// request makes the request of a case.
func (d *Description) request(t *testing.T, base, pattern string, c Case) *http.Request {
	t.Helper()
	method, of, _ := strings.Cut(pattern, " ")
	query, err := url.ParseQuery(c.Query)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range d.parameters(pattern) {
		in, name, _ := strings.Cut(name, " ")
		value := word(p["example"])
		switch {
		case in == "path":
			of = strings.ReplaceAll(of, "{"+name+"}", url.PathEscape(cmp.Or(c.Path[name], value)))
		case in == "query" && p["required"] == true && !query.Has(name):
			query.Set(name, value)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, base+of+"?"+query.Encode(), strings.NewReader(c.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range c.Header {
		r.Header.Set(name, value)
	}
	if at(d.operations[pattern], "responses")["101"] != nil && !c.plain {
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13", "Upgrade": "websocket",
		} {
			r.Header.Set(name, value)
		}
	}
	return r
}

// lastEvent reads the first event, or all of them, and returns the id of the last.
func lastEvent(stream io.Reader, all bool) (id string) {
	data := false
	for lines := bufio.NewScanner(stream); lines.Scan() && (all || !data || lines.Text() != ""); {
		data = data || strings.HasPrefix(lines.Text(), "data: ")
		if name, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = name
		}
	}
	return id
}
