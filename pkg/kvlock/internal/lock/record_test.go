package lock

import (
	"reflect"
	"testing"
	"time"
)

// contended is a lock as others see it while n wait for it.
func contended(n int) *Record {
	r := &Record{
		Lease: "WtHXeWWtHXeWWtHXeWabcd", Instance: "host-12345-abcdef", TTL: 30 * time.Second, Member: "WtHXeWWtHXeWWtHXeWabcd",
		Granted: true, Asked: true, Renewal: 12, Renewed: 1763663523123456789, Since: 1763663523000, Stolen: "host-2", Token: 48211,
	}
	for range n {
		r.queue = append(r.queue, run{member: "WtHXeWWtHXeWWtHXeWabcd", instance: "host-12345-abcdef", places: 1})
	}
	return r
}

// Records as the bucket has them have been the same since the first version.
func TestRecordAsStored(t *testing.T) {
	t.Parallel()
	r := contended(1)
	const want = `{"v":1,"state":"held","claim":"WtHXeWWtHXeWWtHXeWabcd","owner":"owner","instance":"host-12345-abcdef","ttl":30}` + "\n" +
		`{"asked":true,"member":"WtHXeWWtHXeWWtHXeWabcd","granted":true,"metadata":{"for":"\u003cb\u003e"},"renewal":12,` +
		`"renewed":1763663523123456789,"since":1763663523000,"stolen":"host-2","token":48211}` + "\n" +
		`WtHXeWWtHXeWWtHXeWabcd 1 "host-12345-abcdef"` + "\n" + `x 2 "\"\n"` + "\n" + `y 1 ""` + "\n"
	r.queue = append(r.queue, run{"x", "\"\n", 2}, run{"y", "", 1})
	r.Metadata = map[string]string{"for": "<b>"}
	data, err := r.encode("owner")
	if err != nil || string(data) != want {
		t.Fatalf("stored as\n%s, %v, not\n%s", data, err, want)
	}
	r.writer = "owner"
	if got, err := decode(data, nil); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

// No record of a lock causes a panic, and a record that can be read is written as it was read.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":5}` + "\n" + `{"member":"m","since":1}` + "\nx 2 \"i\"\n"))
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":1}` + "\n" + `{"member":"m","since":1,"metadata":{"a":"b"}}` + "\n"))
	f.Add([]byte(`{"v":1,"state":"held","claim":"c","owner":"o","ttl":1}` + "\n" + `{"member":"m","since":1,"metadata":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, nil)
		if err != nil {
			return
		}
		again, err := r.encode(r.writer)
		if err != nil {
			return // escaping made the first line too long
		}
		if back, err := decode(again, nil); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%+v was read back as %+v, %v", r, back, err)
		}
	})
}
