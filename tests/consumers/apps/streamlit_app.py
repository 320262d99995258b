"""A page with a widget."""

import streamlit as st

name = st.text_input("name", "world")
st.write(f"Hello {name}")
