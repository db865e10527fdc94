package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

// giraffe is the venue of all files.
func giraffe() provider.Venue {
	return provider.Venue{
		ID: "7", URL: "https://example.com/giraffe",
		Place: match.Place{
			Address: "Ibn Gabirol 49", Aliases: []string{"ג'ירף", "Giraffe Noodles"}, City: "Tel Aviv",
			Location: &match.Point{Lat: 32.0767, Lng: 34.7818}, Name: "Giraffe", Phone: "03-691-6294",
		},
	}
}

func TestReadFormats(t *testing.T) {
	t.Parallel()
	const object = `{"id":7,"name":"Giraffe","address":"Ibn Gabirol 49","city":"Tel Aviv","phone":"03-691-6294","url":"https://example.com/giraffe",
		"aliases":["ג'ירף","Giraffe Noodles"],"kind":"restaurant","tags":["x"],"open":true`
	tests := map[string]string{
		"array":           "\n[ " + object + `,"lat":32.0767,"lng":"34.7818"} ]` + "\n",
		"nested location": "[" + object + `,"location":{"lat":32.0767,"lng":34.7818,"type":"Point"}}]`,
		"lines":           strings.ReplaceAll(object, "\n", " ") + `,"lat":32.0767,"lng":34.7818}` + "\r\n\r\n",
		"byte order mark": "\ufeff[" + object + `,"lat":32.0767,"lng":34.7818}]`,
		"csv": "id,name,address,city,phone,lat,lng,url,aliases,kind\n" +
			"7,Giraffe,Ibn Gabirol 49,Tel Aviv,03-691-6294,32.0767,34.7818,https://example.com/giraffe,ג'ירף|Giraffe Noodles,restaurant\n",
		"csv of a spreadsheet": "\ufeffname,id,address,city,phone,lat,lng,url,aliases,kind,Notes\r\n" +
			" Giraffe ,7,\"Ibn Gabirol 49\",Tel Aviv,03-691-6294,32.0767,34.7818,https://example.com/giraffe,\"ג'ירף;Giraffe Noodles\",restaurant,good\r\n",
	}
	for name, file := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := find(t, read(t, file, catalog.Config{}), match.Place{Name: "giraffe"})
			check.Equal(t, []provider.Venue{giraffe()}, got)
		})
	}
}

func TestURLOfAVenueThatHasNone(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,city\na/b,Café Nord,Tel Aviv\n", catalog.Config{})
	check.Equal(t, "https://catalog.invalid/venues/a%2Fb", find(t, c, match.Place{Name: "Nord"})[0].URL)
}

func TestBadRowsAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		want []catalog.RowError
	}{
		"csv": {
			"id,name,lat,lng,url\n" +
				"1,Good,,,\n" +
				",Nameful,,,\n" +
				"3,,,,\n" +
				"1,Again,,,\n" +
				"5,Half,32,,\n" +
				"6,Words,north,34,\n" +
				"7,Far,132,34,\n" +
				"8,Bad link,,,javascript:alert(1)\n" +
				"9,Short\n" +
				"\"10,\nTwo lines,,,\n",
			[]catalog.RowError{
				{Line: 3, Problems: []string{"the id is missing"}},
				{Line: 4, Problems: []string{"the name is missing"}},
				{Line: 5, Problems: []string{`the id "1" is that of line 2 as well`}},
				{Line: 6, Problems: []string{"one of lat and lng is missing"}},
				{Line: 7, Problems: []string{`the lat "north" is not a number`}},
				{Line: 8, Problems: []string{"latitude 132, longitude 34 is no place on earth"}},
				{Line: 9, Problems: []string{`the url "javascript:alert(1)": it does not start with https:// or http://`}},
				{Line: 10, Problems: []string{"it has 2 columns, the header has 5"}},
				{Line: 11, Problems: []string{`it is not CSV: extraneous or missing " in quoted-field`}},
			},
		},
		"lines": {
			`{"id":"1","name":"A"}` + "\n" + `{"id":"2","name":` + "\n" + `["3"]` + "\n\n" +
				`{"id":true,"name":"D"}` + "\n" + `{"id":"6","name":"F","aliases":[7]}` + "\n",
			[]catalog.RowError{
				{Line: 2, Problems: []string{"it is not a JSON object: unexpected end of JSON input"}},
				{Line: 3, Problems: []string{
					"it is not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
				}},
				{Line: 5, Problems: []string{"the id is neither a text nor a number", "the id is missing"}},
				{Line: 6, Problems: []string{"the aliases are not a list of texts"}},
			},
		},
		"array": {
			"[\n{\"id\":\"1\",\n\"name\":\"A\"},\nnull,\n{\"name\":\"B\",\"id\":[2]}\n,{\"id\":\"3\",\n\"name\":\"D\",\n\"location\":[1,2]}]",
			[]catalog.RowError{
				{Line: 4, Problems: []string{"it is not a JSON object: null"}},
				{Line: 5, Problems: []string{"the id is neither a text nor a number", "the id is missing"}},
				{Line: 6, Problems: []string{"the location is not an object with lat and lng"}},
			},
		},
		"sizes": {
			"id,name,phone\n" + strings.Repeat("x", 257) + ",A,\n2,B," + strings.Repeat("1", 4097) + "\n3,\xff,\n",
			[]catalog.RowError{
				{Line: 2, Problems: []string{"the id has 257 bytes, more than 256"}},
				{Line: 3, Problems: []string{"the phone has 4097 bytes, more than 4096"}},
				{Line: 4, Problems: []string{"the name is not UTF-8"}},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Read(strings.NewReader(test.file), catalog.Config{})
			check.Equal(t, test.want, rowErrors(t, err))
			for _, row := range test.want {
				if !strings.Contains(err.Error(), row.Error()) {
					t.Errorf("the error does not hold %q:\n%v", row.Error(), err)
				}
			}
		})
	}
}

func TestBadRowsThatAreNamedAreBounded(t *testing.T) {
	t.Parallel()
	_, err := catalog.Read(strings.NewReader("id,name\n"+strings.Repeat("1,\n", 1500)), catalog.Config{})
	if rows := rowErrors(t, err); len(rows) != 1000 || !strings.HasSuffix(err.Error(), "and 500 more") {
		t.Errorf("%d rows named in %d bytes", len(rows), len(err.Error()))
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		want error
		says string
	}{
		"empty":           {"", catalog.ErrFormat, "empty"},
		"blank":           {"\ufeff \n\t", catalog.ErrFormat, "empty"},
		"html":            {"<!DOCTYPE html>", catalog.ErrFormat, "no column id"},
		"utf-16":          {"\xff\xfei\x00d\x00", catalog.ErrFormat, "UTF-16"},
		"no id":           {"name,city\nA,B\n", catalog.ErrFormat, "no column id"},
		"no name":         {"id,city\nA,B\n", catalog.ErrFormat, "no column name"},
		"a field twice":   {"id,name,name\n", catalog.ErrFormat, `"name" twice`},
		"broken header":   {"id,\"name\nx", catalog.ErrFormat, "the header"},
		"cut off":         {`[{"id":"1","name":"A"}`, catalog.ErrFormat, "too early"},
		"cut off inside":  {"[\n{\"id\":\"1\",\"na", catalog.ErrFormat, ":2:"},
		"more than one":   {`[{"id":"1","name":"A"}] [`, catalog.ErrFormat, "follows the array"},
		"too many bytes":  {"id,name\n" + strings.Repeat("1234567,x\n", 100), catalog.ErrTooLarge, "MaxBytes"},
		"too many venues": {"id,name\n1,A\n2,B\n3,C\n4,D\n", catalog.ErrTooLarge, "MaxVenues"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Read(strings.NewReader(test.file), catalog.Config{MaxBytes: 500, MaxVenues: 3})
			check.That(t, errors.Is(err, test.want) && strings.Contains(fmt.Sprint(err), test.says),
				"error = %v, want %v about %q", err, test.want, test.says)
		})
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "venues.csv")
	check.OK(t, os.WriteFile(path, []byte("id,name\n1,Giraffe\n"), 0o600))
	c, err := catalog.Open(path, catalog.Config{})
	check.That(t, err == nil && c.Name() == "catalog", "Open = %v, %v", c, err)
	_, err = catalog.Open(path+"x", catalog.Config{})
	check.That(t, errors.Is(err, os.ErrNotExist) && strings.Contains(err.Error(), "venues.csvx"), "error of a missing file = %v", err)
	_, err = catalog.Open(path, catalog.Config{MaxBytes: 3})
	check.That(t, strings.Contains(fmt.Sprint(err), "venues.csv"), "error %v does not name the file", err)
}

// FuzzRead checks that no file makes the reader fall over, or lets a venue in that
// cannot be given out.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"id,name\n1,A\n", "id;name\n\"1;A\n", `[{"id":1,"name":"A","location":{"lat":1,"lng":2}}]`, `{"id":1,"name":"A","aliases":["b"]}`,
		"[", "{", "[1,{}]", "\xff\xfe", "id,name,lat,lng\n1,A,1e999,NaN\n", "[\n\n{\"id\":\"\\ud800\",\"name\":\"\\u0000\"}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := catalog.Read(bytes.NewReader(file), catalog.Config{})
		if bad, ok := errors.AsType[*catalog.LoadError](err); ok {
			for _, e := range bad.Rows {
				check.That(t, e.Line >= 1 && len(e.Problems) != 0 && strings.Count(string(file), "\n")+1 >= e.Line, "bad row %+v of %q", e, file)
			}
		}
		if err != nil {
			return
		}
		venues, err := c.Search(t.Context(), match.Place{Name: "A", Phone: "03-1234567", Address: "1 A", Location: &match.Point{Lat: 1, Lng: 2}})
		check.OK(t, err)
		for _, v := range venues {
			check.That(t, v.ID != "" && v.Name != "" && strings.HasPrefix(v.URL, "http"), "venue %+v", v)
		}
	})
}
