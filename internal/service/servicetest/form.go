package servicetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const form = "multipart/form-data"

// formCase returns a request that sends an example as a form, as browsers do.
func formCase(example any) Case {
	var body strings.Builder
	w := multipart.NewWriter(&body)
	for name, value := range object(example) {
		create := w.CreateFormField
		if name == "file" {
			create = func(name string) (io.Writer, error) { return w.CreateFormFile(name, "example") }
		}
		part, err := create(name)
		if err == nil {
			_, err = fmt.Fprint(part, value)
		}
		if err != nil {
			panic(err) // a strings.Builder returns no errors
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return Case{Body: body.String(), Header: map[string]string{"Content-Type": w.FormDataContentType()}}
}

// form checks the fields of a form against the schema of its body. Fields that the schema does not declare as texts are written as in
// JSON.
func (tr transport) form(pattern string, media node, body *multipart.Reader) {
	tr.t.Helper()
	schema := at(tr.doc, strings.Split(strings.TrimPrefix(word(at(media, "schema")["$ref"]), "#/"), "/")...)
	fields := map[string]any{}
	for part, err := body.NextPart(); !errors.Is(err, io.EOF); part, err = body.NextPart() {
		var text []byte
		if err == nil {
			text, err = io.ReadAll(part)
		}
		if err != nil {
			tr.t.Errorf("%s has taken a form that cannot be read: %v", pattern, err)
			return
		}
		fields[part.FormName()] = string(text)
		if kind := at(schema, "properties", part.FormName())["type"]; kind != nil && kind != "string" {
			if value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text)); err == nil {
				fields[part.FormName()] = value
			}
		}
	}
	if err := tr.validate(media["schema"], fields); err != nil {
		tr.t.Errorf("%s (request): a form is not as described: %v", pattern, err)
	}
}
